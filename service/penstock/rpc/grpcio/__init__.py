"""The transport over `grpc.aio`."""
