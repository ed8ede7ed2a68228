"""Traces of requests: which are recorded, and where the records go."""
