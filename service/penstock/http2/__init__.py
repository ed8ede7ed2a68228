"""HTTP/2 and gRPC for servers: pure protocol, without clock, socket or task."""
