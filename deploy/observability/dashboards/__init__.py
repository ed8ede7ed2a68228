"""Grafana dashboards, built from Grafana's own types and written as JSON for it to load."""
