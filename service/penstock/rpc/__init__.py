"""The gRPC frontend: translates between protobuf and the core, decides nothing."""
