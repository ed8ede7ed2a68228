"""Identity: every input comes back as the output at the same place. For tests and measurements."""

from penstock_backends.identity.backend import IdentityBackend

__all__ = ["IdentityBackend"]
