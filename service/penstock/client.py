"""The public client, which is in the package `penstock-client`: `penstock_client.client`."""

from importlib import import_module

try:
    _client = import_module("penstock_client.client")
except ModuleNotFoundError as error:
    if error.name != "penstock_client":
        raise
    raise ImportError(
        "penstock.client is in the package penstock-client: pip install penstock-client"
    ) from error

__all__ = list(_client.__all__)
globals().update({name: getattr(_client, name) for name in __all__})
