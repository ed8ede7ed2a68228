"""What a model has around it: other instances, the log, temporary files, files beside its code."""

from __future__ import annotations

import re
import tempfile
import urllib.request
from pathlib import Path

import pytest

from conformance.python_models.client import Client, floats
from conformance.python_models.repository import PythonModel, parameter
from harness.serving import Served, wait_until

# Each instance waits until the other one executes too; files are how they know.
_PARALLEL = """
    import os
    import time
    import numpy as np
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def initialize(self, args):
            self.name, self.directory = args["model_instance_name"], args["model_repository"]

        def execute(self, requests):
            open(os.path.join(self.directory, self.name + ".here"), "w").close()
            while sum(name.endswith(".here") for name in os.listdir(self.directory)) < 2:
                time.sleep(0.002)
            answer = pb_utils.Tensor("Y", np.array([self.name], np.object_))
            return [pb_utils.InferenceResponse([answer]) for _ in requests]
"""

_PRINTING = """
    import sys
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def execute(self, requests):
            for _ in range(4096):
                print("o" * 1023)
                sys.stderr.write("e" * 1023 + "\\n")
            sys.stdout.flush()
            return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", r.inputs()[0].as_numpy())])
                    for r in requests]
"""

_LOGGING = """
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def execute(self, requests):
            logger = pb_utils.Logger
            logger.log_info("an info from the model")
            logger.log_warn("a warning from the model")
            logger.log_error("an error from the model")
            logger.log_verbose("a detail from the model")
            logger.log("a line without a level")
            return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", r.inputs()[0].as_numpy())])
                    for r in requests]
"""

# Answers odd numbers with an error, and tells everybody how many requests came together. The
# first request that it sees, it keeps until there is a file.
_BATCH = """
    import os
    import time
    import numpy as np
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def initialize(self, args):
            self.gate = os.path.join(args["model_repository"], "gate")

        def execute(self, requests):
            open(self.gate + ".begun", "w").close()
            while not os.path.exists(self.gate):
                time.sleep(0.002)
            return [self.respond(request, len(requests)) for request in requests]

        def respond(self, request, size):
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            if int(x[0, 0]) % 2:
                error = pb_utils.TritonError("odd", pb_utils.TritonError.INVALID_ARG)
                return pb_utils.InferenceResponse(error=error)
            y = np.full((len(x), 1), size, np.float32)
            return pb_utils.InferenceResponse([pb_utils.Tensor("Y", y)])
"""

_FILES = {
    "serve_this.py": """
        import model_wide
        import triton_python_backend_utils as pb_utils
        from beside import double
        from .below.deeper import shift


        class TritonPythonModel:
            def execute(self, requests):
                return [self.respond(request) for request in requests]

            def respond(self, request):
                x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
                y = pb_utils.Tensor("Y", model_wide.negate(shift(double(x))))
                return pb_utils.InferenceResponse([y])
    """,
    "beside.py": "def double(x):\n    return 2 * x\n",
    "below/__init__.py": "",
    "below/deeper.py": "from .amount import AMOUNT\n\n\ndef shift(x):\n    return x + AMOUNT\n",
    "below/amount.py": "AMOUNT = 1\n",
    "../model_wide.py": "def negate(x):\n    return -x\n",
}

# Tells where it has its temporary files, and where those are that are to outlast it.
_TEMPORARY = """
    import os
    import tempfile
    import numpy as np
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def execute(self, requests):
            shared = os.environ.get("PENSTOCK_SHARED_TMPDIR", "")
            told = pb_utils.Tensor("Y", np.array([tempfile.gettempdir(), shared], np.object_))
            return [pb_utils.InferenceResponse([told]) for _ in requests]
"""

_SERVE_THIS = 'default_model_filename: "serve_this.py"'
_STUB = {"../triton_python_backend_stub": "#!/bin/sh\nexit 1\n"}
"""A file of the model's folder that would run the model in Triton."""

MODELS = {
    "parallel": PythonModel(_PARALLEL, outputs="Y:STRING[1]", instances=2),
    "printing": PythonModel(_PRINTING),
    "logging": PythonModel(_LOGGING),
    "batch": PythonModel(
        _BATCH, "X:FP32[1]", "Y:FP32[1]", "max_batch_size: 4\ndynamic_batching { }"
    ),
    "temporary": PythonModel(_TEMPORARY, outputs="Y:STRING[2]"),
    "temporary_private": PythonModel(
        _TEMPORARY, outputs="Y:STRING[2]", config=parameter("penstock.private_tmp", "true")
    ),
    "several_files": PythonModel(config=_SERVE_THIS, files=_FILES),
    "with_a_stub": PythonModel(config=_SERVE_THIS, files={**_FILES, **_STUB}),
}


@pytest.mark.contract("PY-04")
def test_batch_is_executed_together_and_answered_one_by_one(
    client: Client, server: Served, repository: Path
) -> None:
    held = client.begin("batch", {"X": floats(0).reshape(1, 1)})
    pending = re.compile(r'nv_inference_pending_request_count\{model="batch",version="1"\} 4\n')

    def queued() -> bool:
        page = urllib.request.urlopen(server.metrics, timeout=60).read().decode()
        return pending.search(page) is not None

    wait_until((repository / "batch" / "gate.begun").exists)
    others = [client.begin("batch", {"X": floats(n).reshape(1, 1)}) for n in range(4)]
    wait_until(queued)
    (repository / "batch" / "gate").touch()
    assert held.result()["Y"].tolist() == [[1]]
    assert others[0].result()["Y"].tolist() == others[2].result()["Y"].tolist() == [[4]]
    assert [others[n].error().message for n in (1, 3)] == ["odd", "odd"]


@pytest.mark.contract("PY-42")
def test_instances_execute_at_the_same_time(client: Client) -> None:
    orders = [client.begin("parallel") for _ in range(2)]
    names = {order.result()["Y"][0] for order in orders}
    assert names == {b"parallel_0_0", b"parallel_0_1"}


def test_code_may_lie_in_several_files(client: Client) -> None:
    assert client.infer("several_files", {"X": floats(1, 2)})["Y"].tolist() == [-3, -5]


@pytest.mark.contract("PY-36")
def test_a_stub_of_the_model_s_own_is_not_run(client: Client) -> None:
    assert client.infer("with_a_stub", {"X": floats(1, 2)})["Y"].tolist() == [-3, -5]


def test_temporary_files_are_where_those_of_the_server_are(client: Client) -> None:
    told = [text.decode() for text in client.infer("temporary")["Y"]]
    assert told == [tempfile.gettempdir(), ""]


def test_temporary_files_may_be_private(client: Client) -> None:
    own, shared = (text.decode() for text in client.infer("temporary_private")["Y"])
    assert shared == tempfile.gettempdir()
    assert own != shared
    assert Path(own).is_dir()


def test_model_may_print_megabytes(client: Client, server: Served) -> None:
    before = server.log.stat().st_size
    assert client.infer("printing")["Y"].tolist() == [1]
    assert server.log.stat().st_size - before >= 8 << 20


@pytest.mark.contract("PY-33")
def test_log_of_the_model_goes_to_the_servers(client: Client, server: Served) -> None:
    client.infer("logging")

    def lines() -> list[tuple[str, ...]]:
        return re.findall(
            r'^(\w)\d.* model.py:(\d+)\] "(an? .*)" model=logging instance=logging_0_0$',
            server.log.read_text(),
            re.M,
        )

    wait_until(lambda: len(lines()) >= 4)
    assert lines() == [
        ("I", "7", "an info from the model"),
        ("W", "8", "a warning from the model"),
        ("E", "9", "an error from the model"),
        ("I", "11", "a line without a level"),
    ]
