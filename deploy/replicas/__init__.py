"""Two servers behind a proxy, in containers or without them."""
