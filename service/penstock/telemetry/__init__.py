"""Telemetry of the server: log and metrics page. Imported by `app` only."""
