"""Prometheus, Grafana and Jaeger around the server, in containers or without them."""
