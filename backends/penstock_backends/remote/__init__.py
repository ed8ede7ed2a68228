"""Models that another process or machine serves: any server of KServe v2, or of OpenAI's API."""

from penstock_backends.remote.backend import RemoteBackend

__all__ = ["RemoteBackend"]
