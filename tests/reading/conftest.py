"""The server that `penstock top` is tested with, too."""

from top.conftest import server

__all__ = ["server"]
