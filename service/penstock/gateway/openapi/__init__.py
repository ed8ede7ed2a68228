"""The HTTP endpoint described in OpenAPI 3.1, and a page that shows it (`--http-docs`)."""
