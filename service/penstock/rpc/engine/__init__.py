"""Services by which routers of language-model engines speak to the server (`--engine-rpc`)."""
