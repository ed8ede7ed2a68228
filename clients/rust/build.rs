//! Generates the stubs, with the program that `PROTOC` names or else `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let protos = "../../proto";
    println!("cargo:rerun-if-changed={protos}");
    tonic_prost_build::configure()
        .build_server(false)
        .compile_protos(&[format!("{protos}/grpc_service.proto")], &[protos.to_string()])?;
    Ok(())
}
