"""`penstock.client`, the name of the library in the server's package."""

from __future__ import annotations

import subprocess
import sys

import penstock.client
import penstock_client.client

_WITHOUT = """
import sys

class Missing:
    def find_spec(name, path=None, target=None):
        if name == "penstock_client":
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Missing)
import penstock.client
"""


def test_names_are_those_of_the_client_package() -> None:
    assert penstock.client.__all__ == penstock_client.client.__all__
    assert penstock.client.Client is penstock_client.client.Client


def test_without_the_client_package_the_error_names_it() -> None:
    done = subprocess.run([sys.executable, "-c", _WITHOUT], capture_output=True, text=True)
    assert done.stderr.endswith(
        "ImportError: penstock.client is in the package penstock-client:"
        " pip install penstock-client\n"
    )
