//! Penstock from Rust, asking a server with the models of clients/models.
//!
//!     penstock-client HOST:PORT [AUTHORITY.pem]

mod retries;

use std::collections::HashMap;
use std::error::Error;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Request, Status, Streaming};

pub mod inference {
    tonic::include_proto!("inference");
}
use inference::grpc_inference_service_client::GrpcInferenceServiceClient;
use inference::infer_parameter::ParameterChoice;
use inference::model_infer_request::InferInputTensor;
use inference::{InferParameter, ModelInferRequest, ModelStatisticsRequest, ModelStreamInferResponse};

type Client = GrpcInferenceServiceClient<Channel>;
type Outcome = Result<(), Box<dyn Error>>;

const LONG: Duration = Duration::from_secs(30);

async fn connect(address: &str, authority: Option<&String>) -> Result<Client, Box<dyn Error>> {
    let channel = match authority {
        None => Endpoint::from_shared(format!("http://{address}"))?,
        Some(file) => {
            let certificate = Certificate::from_pem(std::fs::read(file)?);
            let tls = ClientTlsConfig::new().ca_certificate(certificate);
            Endpoint::from_shared(format!("https://{address}"))?.tls_config(tls)?
        }
    };
    let client = GrpcInferenceServiceClient::new(channel.connect().await?);
    Ok(client.max_decoding_message_size(usize::MAX))
}

async fn unary(client: &mut Client) -> Outcome {
    let first: Vec<i32> = (0..16).collect();
    let second = vec![1; 16];
    let request = ModelInferRequest {
        model_name: "simple".into(),
        inputs: vec![tensor("INPUT0", "INT32", &[1, 16]), tensor("INPUT1", "INT32", &[1, 16])],
        raw_input_contents: vec![integers(&first), integers(&second)],
        ..Default::default()
    };
    let response = client.model_infer(within(LONG, request)).await?.into_inner();
    assert_eq!(numbers(&response.raw_output_contents[0]), (1..17).collect::<Vec<_>>());
    assert_eq!(numbers(&response.raw_output_contents[1]), (-1..15).collect::<Vec<_>>());
    Ok(())
}

/// Statistics, which the server of the check gives only to those who send this metadata.
async fn metadata(client: &mut Client) -> Outcome {
    let model = ModelStatisticsRequest { name: "simple".into(), ..Default::default() };
    let mut request = within(LONG, model);
    request.metadata_mut().insert("triton-grpc-protocol-clients", "friends".parse()?);
    let response = client.model_statistics(request).await?.into_inner();
    let statistics = response.model_stats[0].inference_stats.as_ref().ok_or("no statistics")?;
    assert!(statistics.success.is_some_and(|success| success.count >= 1));
    Ok(())
}

async fn stream(client: &mut Client) -> Outcome {
    let mut answers = generate(client, 20, LONG).await?;
    let (mut count, mut ended) = (0, false);
    while let Some(message) = answers.message().await? {
        assert!(!ended, "a response came after the final one");
        let (text, is_final) = token(message)?;
        print!("{text}");
        (count, ended) = (count + 1, is_final);
    }
    println!();
    assert!(ended && count > 2);
    Ok(())
}

/// Leave after three tokens: the server stops the generation. Dropping the stream is what cancels.
async fn cancel(client: &mut Client) -> Outcome {
    let mut answers = generate(client, 1000, LONG).await?;
    for _ in 0..3 {
        token(answers.message().await?.ok_or("the stream has ended")?)?;
    }
    drop(answers);
    Ok(())
}

/// A quarter of a second for a generation that takes longer: the tokens that come in time are kept.
async fn deadline(client: &mut Client) -> Outcome {
    let mut answers = generate(client, 1000, Duration::from_millis(250)).await?;
    let status = loop {
        match answers.message().await {
            Ok(Some(message)) => token(message)?,
            Ok(None) => return Err("the generation ended in time".into()),
            Err(status) => break status,
        };
    };
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    Ok(())
}

/// A model that refuses each request id twice.
async fn retry(client: &mut Client) -> Outcome {
    let policy = retries::Policy::read("../retry_policy.json")?;
    let moment = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
    let message = ModelInferRequest {
        model_name: "flaky".into(),
        id: format!("rust-{moment}"),
        inputs: vec![tensor("IN", "INT32", &[1])],
        raw_input_contents: vec![integers(&[0])],
        ..Default::default()
    };
    let response = policy
        .send(async || client.model_infer(within(LONG, message.clone())).await)
        .await?
        .into_inner();
    assert_eq!(numbers(&response.raw_output_contents[0]), [3]);
    Ok(())
}

async fn generate(
    client: &mut Client,
    max_tokens: u32,
    time: Duration,
) -> Result<Streaming<ModelStreamInferResponse>, Status> {
    let sampling = format!(r#"{{"max_tokens": {max_tokens}, "ignore_eos": true}}"#);
    let flag = InferParameter { parameter_choice: Some(ParameterChoice::BoolParam(true)) };
    let request = ModelInferRequest {
        model_name: "tiny_llm".into(),
        inputs: vec![
            tensor("text_input", "BYTES", &[1]),
            tensor("stream", "BOOL", &[1]),
            tensor("sampling_parameters", "BYTES", &[1]),
        ],
        raw_input_contents: vec![text("The file is"), vec![1], text(&sampling)],
        // The last response is then an empty one, so that the end is known when the last token comes.
        parameters: HashMap::from([("triton_enable_empty_final_response".into(), flag)]),
        ..Default::default()
    };
    let requests = within(time, tokio_stream::once(request));
    Ok(client.model_stream_infer(requests).await?.into_inner())
}

/// The text of a response, and whether it is the final one.
fn token(message: ModelStreamInferResponse) -> Result<(String, bool), Box<dyn Error>> {
    if !message.error_message.is_empty() {
        return Err(message.error_message.into());
    }
    let response = message.infer_response.ok_or("neither a response nor an error")?;
    let flag = response.parameters.get("triton_final_response");
    let is_final = flag.is_some_and(|p| p.parameter_choice == Some(ParameterChoice::BoolParam(true)));
    let contents = response.raw_output_contents.first();
    let text = contents.map_or(Ok(String::new()), |raw| String::from_utf8(raw[4..].to_vec()))?;
    Ok((text, is_final))
}

/// A message with a deadline, which the server keeps as well.
fn within<T>(time: Duration, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(time);
    request
}

fn tensor(name: &str, datatype: &str, shape: &[i64]) -> InferInputTensor {
    InferInputTensor {
        name: name.into(),
        datatype: datatype.into(),
        shape: shape.into(),
        ..Default::default()
    }
}

fn integers(values: &[i32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn numbers(raw: &[u8]) -> Vec<i32> {
    raw.chunks_exact(4).map(|four| i32::from_le_bytes(four.try_into().unwrap())).collect()
}

/// The contents of a BYTES tensor of one element.
fn text(value: &str) -> Vec<u8> {
    [&(value.len() as u32).to_le_bytes(), value.as_bytes()].concat()
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().collect();
    let mut client = connect(&arguments[1], arguments.get(2)).await?;
    unary(&mut client).await?;
    println!("ok unary");
    metadata(&mut client).await?;
    println!("ok metadata");
    stream(&mut client).await?;
    println!("ok stream");
    cancel(&mut client).await?;
    println!("ok cancel");
    deadline(&mut client).await?;
    println!("ok deadline");
    retry(&mut client).await?;
    println!("ok retry");
    Ok(())
}
