"""Connections to a server under load, with little work for each request: no objects of a protocol
library, and nothing of a response is decoded that is not counted."""
