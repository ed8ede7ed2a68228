"""Which models there are, in what state, and the facade that serves them."""
