"""The gRPC transport over `grpc.aio`."""
