"""Penstock: an inference server for many models, asyncio and gRPC first.

Public, and stable as `docs/api.md` says, are this module, `penstock.model` (authors of models),
`penstock.backend` (authors of backends), `penstock.testing` (their tests), `penstock.client` (users
of servers; its package is `penstock-client`), `penstock.in_process` (programs with a server
inside), the commands `penstock` and `tritonserver`, and the entry point groups `penstock.backends`
and `penstock.caches`. Every other module is the server's own and may change with any release.
"""

__version__ = "0.1.0"

__all__ = ["__version__"]
