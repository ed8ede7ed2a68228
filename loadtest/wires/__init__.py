"""Connections of load tests, read with little work for each message: gRPC, events, whole answers."""
