"""What a model's process reads before it is ready; how long that takes is for `loadtest`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable

from conformance.python_models.client import Client
from conformance.python_models.repository import PythonModel

_PLAIN = "import sys, numpy; print(*sys.modules)"
_IMPORTED = """
    import sys
    import numpy as np
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def execute(self, requests):
            names = np.array([" ".join(sys.modules)], object)
            return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", names)]) for _ in requests]
"""

MODELS = {"imported": PythonModel(_IMPORTED, outputs="Y:STRING[1]")}


def _imported(client: Client) -> list[str]:
    names: bytes = client.infer("imported")["Y"][0]
    return names.decode().split()


def _roots(names: Iterable[str]) -> set[str]:
    return {name.partition(".")[0] for name in names}


def test_process_imports_only_numpy_and_what_hosts_it(client: Client) -> None:
    plain = subprocess.check_output([sys.executable, "-c", _PLAIN], text=True).split()
    interface = {"triton_python_backend_utils", "c_python_backend_utils"}
    more = _roots(_imported(client)) - _roots(plain) - sys.stdlib_module_names
    assert more == {"1", "ormsgpack", "penstock", "penstock_backends", *interface}


def test_process_imports_nothing_that_is_the_servers_part(client: Client) -> None:
    servers = {"importlib.metadata", "penstock_backends.python.backend", "tarfile"}
    assert not servers.intersection(_imported(client))
