"""The server side of model processes: start, watch, restart, and requests in flight."""
