"""HTTP/1.1 of a server (RFC 9112) without sockets or clocks: bytes in, exchanges and bytes out."""
