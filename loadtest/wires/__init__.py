"""Connections of load tests, read with little work a message: gRPC, events, whole answers."""
