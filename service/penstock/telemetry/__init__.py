"""Views of what the server does: logs, metrics and traces. Imported by `app` only."""
