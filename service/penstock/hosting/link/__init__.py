"""The link between server and model process: frames, messages, shared arenas, flow control."""
