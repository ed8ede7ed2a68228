"""Observability of HTTP requests: traces and load reports."""
