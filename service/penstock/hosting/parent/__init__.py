"""The server's side of model processes: start, watch, restart, and what is in flight on each link."""
