"""What a model's process reads before it is ready; how long that takes is for `loadtest`."""

from __future__ import annotations

import subprocess
import sys

from conformance.python_models.client import Client
from conformance.python_models.repository import PythonModel

_ROOTS = '" ".join({name.partition(".")[0] for name in sys.modules})'
_PLAIN = f"import sys, numpy; print({_ROOTS})"
_IMPORTED = f"""
    import sys
    import numpy as np
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def execute(self, requests):
            roots = np.array([{_ROOTS}], object)
            return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", roots)]) for _ in requests]
"""

MODELS = {"imported": PythonModel(_IMPORTED, outputs="Y:STRING[1]")}


def test_process_imports_only_numpy_and_what_hosts_it(client: Client) -> None:
    plain = subprocess.check_output([sys.executable, "-c", _PLAIN], text=True).split()
    found = set(client.infer("imported")["Y"][0].decode().split())
    interface = {"triton_python_backend_utils", "c_python_backend_utils"}
    more = found - set(plain) - sys.stdlib_module_names
    assert more == {"1", "ormsgpack", "penstock", "penstock_backends", *interface}
