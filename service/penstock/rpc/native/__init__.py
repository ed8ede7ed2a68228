"""Our own gRPC transport: the asyncio shell around `penstock.http2`, and its calls."""
