"""Protobuf messages and gRPC stubs, generated from `proto/` by `proto/generate.py`."""
