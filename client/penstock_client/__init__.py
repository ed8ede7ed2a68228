"""Tools for whoever has a running server: a client library, and the commands that ask servers.

`penstock_client.client` is the library, `perf` puts a load on a server, `tune` searches settings of
a model, `top` shows a server on a terminal, and `commands` has `penstock infer` and its like.
Of the server's package they import the few modules that a contract in `pyproject.toml` lists.
"""

__version__ = "0.1.0"

__all__ = ["__version__"]
