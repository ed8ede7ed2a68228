"""Models to tune: one that sleeps, so that instances help, and what goes wrong with others."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from penstock_client.tune.command import run

CONFIG = """\
# Sleeps for each execution.
name: "sleepy"
backend: "python"
max_batch_size: 4
input [ { name: "IN" data_type: TYPE_FP32 dims: [ 2 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ 2 ] } ]
instance_group [ { count: 1 kind: KIND_CPU } ]  # few
"""
_MODEL = """\
import json, os, signal, time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.config = json.loads(args["model_config"])
        given = {name: each["string_value"] for name, each in self.config["parameters"].items()}
        self.mode = given.get("mode", "")
        self.seconds = float(given.get("seconds", "0.05"))
        if self.mode == "as it is" and self.config["max_batch_size"] != 4:
            self.seconds *= 2
        if self.mode == "refuse":
            raise ValueError("this mode is refused")

    def execute(self, requests):
        if self.mode == "kill":
            os.kill(os.getppid(), signal.SIGKILL)
        if self.mode == "fail":
            raise ValueError("no answer")
        time.sleep(self.seconds)
        return [
            pb_utils.InferenceResponse(
                [pb_utils.Tensor("OUT", pb_utils.get_input_tensor_by_name(each, "IN").as_numpy())]
            )
            for each in requests
        ]
"""


_SPEAKER_CONFIG = """\
backend: "python"
model_transaction_policy { decoupled: true }
input [
  { name: "text_input" data_type: TYPE_STRING dims: [ 1 ] },
  { name: "sampling_parameters" data_type: TYPE_STRING dims: [ 1 ] optional: true }
]
output [ { name: "text_output" data_type: TYPE_STRING dims: [ 1 ] } ]
instance_group [ { kind: KIND_CPU } ]
"""
_SPEAKER = """\
import json, time
from pathlib import Path
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        path = Path(args["model_repository"], args["model_version"], "model.json")
        self.seconds = json.loads(path.read_text())["step_ms"] / 1e3

    def execute(self, requests):
        for request in requests:
            given = pb_utils.get_input_tensor_by_name(request, "sampling_parameters").as_numpy()
            sender = request.get_response_sender()
            for _ in range(json.loads(given.flat[0])["max_tokens"]):
                time.sleep(self.seconds)
                word = pb_utils.Tensor("text_output", np.array([b"word"], np.object_))
                sender.send(pb_utils.InferenceResponse([word]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


def write_speaker(models: Path) -> None:
    """A language model of a kind: `step_ms` in its `model.json` is the time of a token."""
    folder = models / "speaker"
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(_SPEAKER_CONFIG)
    (folder / "1" / "model.py").write_text(_SPEAKER)
    (folder / "1" / "model.json").write_text('{"name": "speaker", "step_ms": 4}')


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A repository with the model `sleepy`."""
    folder = tmp_path / "models" / "sleepy"
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(CONFIG)
    (folder / "1" / "model.py").write_text(_MODEL)
    return tmp_path / "models"


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command ended with, wrote and printed."""

    status: int
    folder: Path
    printed: str

    @property
    def results(self) -> Mapping[str, Any]:
        """All that is in `results.json`."""
        found: Mapping[str, Any] = json.loads((self.folder / "results.json").read_text())
        return found

    @property
    def changes(self) -> list[Mapping[str, Any]]:
        """What the measured variants change, in the order in which they were measured."""
        return [each["changes"] for each in self.results["variants"]]


Tune = Callable[..., Ran]


@pytest.fixture
def tune(models: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Tune:
    """Runs `penstock tune sleepy` with loads of few requests, which end whatever time they take."""

    def tune(*words: str, model: str = "sleepy") -> Ran:
        output = tmp_path / "tuned"
        own = [model, "--model-repository", str(models), "--output", str(output)]
        short = ["--duration", "0.3", "--warmup", "0.1", "--rounds", "0"]
        few = [] if "--" in words else ["--", "--requests=8"]
        try:
            status = run([*own, *short, *words, *few])
        except SystemExit as ended:  # of argparse
            status = int(ended.code or 0)
        printed = capfd.readouterr()
        return Ran(status, output / model, printed.out + printed.err)

    return tune
