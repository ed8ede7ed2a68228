"""Exchanges over HTTP with the ASGI application of a backend: values, and their way through it."""
