"""The link between server and model process: frames, messages, shared-memory arenas, flow control."""
