"""The identity backend: each input is returned as an output. For tests and measurements."""

from penstock_backends.identity.backend import IdentityBackend

__all__ = ["IdentityBackend"]
