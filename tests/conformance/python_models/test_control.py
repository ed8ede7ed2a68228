"""Models that come and go: by their clients, by other models, and what they leave behind."""

from __future__ import annotations

import urllib.request
from pathlib import Path

import pytest

from conformance.python_models.client import Client, RefusedError, floats
from conformance.python_models.repository import PythonModel
from harness.serving import Served, wait_until

ARGUMENTS = ("--model-control-mode=explicit", "--load-model=control", "--load-model=echo")

_ECHO = """
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def execute(self, requests):
            return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", r.inputs()[0].as_numpy())])
                    for r in requests]
"""

# Does what the request's id says to the model that the parameter names.
_CONTROL = """
    import json
    import numpy as np
    import triton_python_backend_utils as pb_utils

    TENSOR = '"data_type": "TYPE_FP32", "dims": [-1]'
    CONFIG = ('{"backend": "python", "input": [{"name": "X", %s}],'
              ' "output": [{"name": "Y", %s}]}' % (TENSOR, TENSOR))
    CODE = '''import triton_python_backend_utils as pb
    class TritonPythonModel:
        def execute(self, requests):
            return [pb.InferenceResponse([pb.Tensor("Y", r.inputs()[0].as_numpy() * 2)])
                    for r in requests]'''


    class TritonPythonModel:
        def execute(self, requests):
            return [self.respond(request) for request in requests]

        def respond(self, request):
            model, verb = json.loads(request.parameters())["model"], request.request_id()
            if verb == "load":
                pb_utils.load_model(model_name=model)
            elif verb == "make":
                pb_utils.load_model(
                    model, config=CONFIG, files={"file:1/model.py": CODE.encode()})
            elif verb == "unload":
                pb_utils.unload_model(model)
            ready = pb_utils.is_model_ready(model_name=model)
            y = np.array([ready], np.float32)
            return pb_utils.InferenceResponse([pb_utils.Tensor("Y", y)])
"""

_METRICS = """
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def initialize(self, args):
            family = pb_utils.MetricFamily
            self.counters = family(
                name="requests_seen", description="Requests seen", kind=family.COUNTER)
            self.gauges = family(name="last_value", description="Last value", kind=family.GAUGE)
            self.sizes = family(name="sizes", description="Sizes", kind=family.HISTOGRAM)
            self.seen = self.counters.Metric(labels={"model": "metrics", "version": "1"})
            self.last = self.gauges.Metric(labels={})
            self.size = self.sizes.Metric(labels={}, buckets=[1, 10])
            self.passing = self.counters.Metric(labels={"model": "passing"})
            self.blocks = family(name="nv_trt_llm_kv_cache_block_metrics", description="KV cache",
                                 kind=family.GAUGE)
            self.cache = [self.blocks.Metric(labels={"kv_cache_block_type": kind})
                          for kind in ("tokens_per", "used", "max")]
            for metric, value in zip(self.cache, (64, 25, 100)):
                metric.set(value)

        def execute(self, requests):
            del self.passing
            self.passing = self.counters.Metric(labels={"model": "passing"})
            for request in requests:
                x = request.inputs()[0].as_numpy()
                self.seen.increment(1)
                self.last.set(float(x[0]))
                self.size.observe(x.size)
            assert self.seen.value() >= len(requests)
            return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", r.inputs()[0].as_numpy())])
                    for r in requests]
"""

_FINALIZE = """
    import os


    class TritonPythonModel:
        def initialize(self, args):
            self.path = os.path.join(args["model_repository"], "finalized")

        def execute(self, requests):
            return []

        def finalize(self):
            open(self.path, "w").close()
            raise RuntimeError("no farewell")
"""

_AUTO_COMPLETE = """
    import os
    import sys
    import time


    class TritonPythonModel:
        @staticmethod
        def auto_complete_config(config):
            %s
            return config

        def execute(self, requests):
            return []
"""

_INITIALIZE = """
    import os
    import sys


    class TritonPythonModel:
        def initialize(self, args):
            %s

        def execute(self, requests):
            return []
"""

_AT_IMPORT = """
    class TritonPythonModel:
        def execute(self, requests):
            return []


    def fail():
        raise KeyError("not at import")


    fail()
"""

_SYNTAX = "class TritonPythonModel:\n    def execute(self, requests)\n        return []\n"

_REFUSES = (
    "import triton_python_backend_utils as pb_utils; "
    'raise pb_utils.TritonModelException("no weights")'
)
_SEGFAULT = "import ctypes; ctypes.string_at(0)"

MODELS = {
    "echo": PythonModel(_ECHO),
    "control": PythonModel(_CONTROL),
    "guest": PythonModel(_ECHO),
    "metrics": PythonModel(_METRICS),
    "finalize": PythonModel(_FINALIZE),
    "auto_raises": PythonModel(_AUTO_COMPLETE % 'raise ValueError("no idea")', config=None),
    "auto_exits": PythonModel(_AUTO_COMPLETE % "os._exit(4)", config=None),
    "auto_crashes": PythonModel(_AUTO_COMPLETE % _SEGFAULT, config=None),
    "auto_returns_nothing": PythonModel(_AUTO_COMPLETE % "return None", config=None),
    "auto_prints": PythonModel(_AUTO_COMPLETE % 'print("o" * (1 << 20))', config=None),
    "initialize_raises": PythonModel(_INITIALIZE % 'raise ValueError("no start")'),
    "initialize_leaves": PythonModel(_INITIALIZE % "sys.exit(5)"),
    "initialize_exits": PythonModel(_INITIALIZE % "os._exit(4)"),
    "initialize_crashes": PythonModel(_INITIALIZE % _SEGFAULT),
    "auto_refuses": PythonModel(_AUTO_COMPLETE % _REFUSES, config=None),
    "initialize_refuses": PythonModel(_INITIALIZE % _REFUSES),
    "at_import": PythonModel(_AT_IMPORT),
    "syntax": PythonModel(_SYNTAX),
    "no_class": PythonModel("def execute(requests):\n    return []\n"),
}

_REFUSED = [
    ("auto_raises", "Internal: ValueError: no idea\n\nAt:\n  {path}(9): auto_complete_config\n"),
    ("auto_exits", "the process that completes its configuration exited with status 4"),
    ("auto_crashes", "that completes its configuration was killed by signal 11 (SIGSEGV)"),
    ("auto_returns_nothing", "in model 'auto_returns_nothing' must return a valid"),
    ("initialize_raises", "Internal: ValueError: no start\n\nAt:\n  {path}(7): initialize\n"),
    ("initialize_leaves", "Internal: SystemExit: 5\n\nAt:\n  {path}(7): initialize\n"),
    ("initialize_exits", "process of instance 'initialize_exits_0_0' exited with status 4"),
    ("initialize_crashes", "'initialize_crashes_0_0' was killed by signal 11 (SIGSEGV)"),
    ("auto_refuses", "Internal: TritonModelException: no weights\n\nAt:\n  {path}(9): "),
    ("initialize_refuses", "Internal: TritonModelException: no weights\n\nAt:\n  {path}(7): "),
    ("at_import", "KeyError: 'not at import'\n\nAt:\n  {path}(7): fail\n  {path}(10): <module>\n"),
    ("syntax", "Internal: SyntaxError: expected ':' (model.py, line 2)"),
    ("no_class", "AttributeError: module '1.model' has no attribute 'TritonPythonModel'"),
]


def control(client: Client, verb: str, model: str) -> bool:
    """Have the model `control` do something to another; whether that is ready afterwards."""
    answer = client.infer("control", request_id=verb, parameters={"model": model})
    return bool(answer["Y"][0])


def page_of(server: Served) -> str:
    """The server's metrics."""
    text: str = urllib.request.urlopen(server.metrics, timeout=60).read().decode()
    return text


# -- by other models ------------------------------------------------------------------------------


@pytest.mark.contract("PY-32")
def test_model_loads_and_unloads_another(client: Client) -> None:
    assert not control(client, "ask", "guest")
    assert control(client, "load", "guest")
    assert client.infer("guest", {"X": floats(3)})["Y"].tolist() == [3]
    assert not control(client, "unload", "guest")
    assert not client.ready("guest")


@pytest.mark.contract("PY-32", "X-18")
def test_model_makes_another_of_files(client: Client) -> None:
    assert control(client, "make", "made")
    assert client.infer("made", {"X": floats(3)})["Y"].tolist() == [6]
    assert not control(client, "unload", "made")


def test_model_that_unloads_itself_answers_first(client: Client) -> None:
    assert not control(client, "unload", "control")
    assert not client.ready("control")
    client.load("control")
    assert control(client, "ask", "control")


def test_model_is_told_why_another_cannot_be_loaded(client: Client) -> None:
    with pytest.raises(RefusedError, match=r"Failed to load model.*ValueError: no start"):
        control(client, "load", "initialize_raises")


# -- what they leave behind -----------------------------------------------------------------------


@pytest.mark.contract("PY-34", "ME-29", "ME-35")
def test_metrics_of_a_model_live_as_long_as_it_does(client: Client, server: Served) -> None:
    client.load("metrics")
    client.infer("metrics", {"X": floats(5, 6)})
    client.infer("metrics", {"X": floats(7)})
    page = page_of(server)
    assert "# HELP requests_seen Requests seen\n# TYPE requests_seen counter\n" in page
    assert 'requests_seen{model="metrics",version="1"} 2\n' in page
    assert "last_value 7\n" in page
    assert 'sizes_bucket{le="1"} 1\n' in page
    assert 'sizes_bucket{le="10"} 2\n' in page
    assert 'nv_inference_count{model="metrics",version="1"} 2\n' in page
    client.unload("metrics")
    wait_until(lambda: not client.ready("metrics"))
    wait_until(lambda: "requests_seen" not in page_of(server))
    assert 'model="metrics"' not in page_of(server)


@pytest.mark.contract("HG-13", "HG-14")
def test_replies_report_the_kv_cache_of_a_models_own_metrics(
    client: Client, server: Served
) -> None:
    """From TensorRT-LLM's metric, which any model may make, as in Triton."""
    client.load("metrics")
    headers = {"endpoint-load-metrics-format": "text"}
    url = f"http://{server.http}/v2/models/metrics/generate"
    request = urllib.request.Request(url, b'{"X":[1.0]}', headers)
    with urllib.request.urlopen(request, timeout=60) as reply:
        report = reply.headers["endpoint-load-metrics"]
    client.unload("metrics")
    assert report == (
        "TEXT named_metrics.kv_cache_utilization=0.250000, named_metrics.max_token_capacity=6400"
    )


@pytest.mark.contract("PY-05")
def test_finalize_is_called_and_may_fail(client: Client, server: Served, repository: Path) -> None:
    client.load("finalize")
    client.unload("finalize")
    wait_until((repository / "finalize" / "finalized").exists)
    names = "model=finalize instance=finalize_0_0"
    told = f'finalize failed: RuntimeError: no farewell" {names}\n    At:\n      '
    where = f"{repository}/finalize/1/model.py(13)"
    wait_until(lambda: told + where in server.log.read_text())
    client.load("finalize")


# -- models that cannot be loaded -----------------------------------------------------------------


@pytest.mark.contract("PY-20")
@pytest.mark.parametrize(("model", "told"), _REFUSED, ids=[model for model, _ in _REFUSED])
def test_what_goes_wrong_at_load_is_told(
    client: Client, repository: Path, model: str, told: str
) -> None:
    with pytest.raises(RefusedError) as refused:
        client.load(model)
    assert refused.value.code == "INVALID_ARGUMENT"
    message = refused.value.message
    assert message.startswith(f"load failed for model '{model}': version 1 is at UNAVAILABLE state")
    assert told.format(path=repository / model / "1" / "model.py") in message
    assert not client.ready(model)
    assert client.infer("echo", {"X": floats(2)})["Y"].tolist() == [2]


def test_model_may_print_megabytes_while_it_completes_its_configuration(client: Client) -> None:
    client.load("auto_prints")
    assert client.ready("auto_prints")
