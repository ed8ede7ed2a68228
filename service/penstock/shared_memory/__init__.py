"""Memory of clients that tensors stay in: registered by name, mapped here, used by requests."""
