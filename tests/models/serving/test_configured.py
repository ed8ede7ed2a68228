"""Fields of a configuration by what they change in a server that has loaded it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import penstock.in_process as tritonserver

_IDENTITY = """
backend: "identity"
input {{ name: "X" data_type: TYPE_FP32 dims: [ 4 ] {inner} }}
output {{ name: "Y" data_type: TYPE_FP32 dims: [ 4 ] }}
{more}
"""
_WARMED = """
backend: "python"
max_batch_size: 4
model_warmup {
  name: "nothing" count: 3 batch_size: 2
  inputs { key: "X" value { data_type: TYPE_FP32 dims: 2 zero_data: true } }
}
model_warmup {
  name: "anything" batch_size: 1
  inputs { key: "X" value { data_type: TYPE_FP32 dims: 2 random_data: true } }
}
"""
_NOTING = """
from pathlib import Path

from penstock.model import DataType, Input, Model, ModelConfig, Output, Response

_NOTE = Path(__file__).with_name("note")


class Noting(Model):
    config = ModelConfig(
        max_batch_size=4,
        input=(Input("X", DataType.FP32, dims=(2,)),),
        output=(Output("Y", DataType.FP32, dims=(2,)),),
    )

    async def infer(self, request):
        values = request["X"]
        with _NOTE.open("a") as note:
            note.write(("anything" if values.any() else "nothing") + "\\n")
        return Response({"Y": values})
"""


def _write(folder: Path, *versions: int, **fields: str) -> None:
    for version in versions or (1,):
        (folder / str(version)).mkdir(parents=True)
    text = _IDENTITY.format(**{"inner": "", "more": "", **fields})
    (folder / "config.pbtxt").write_text(text)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tritonserver.Server]:
    models = tmp_path_factory.mktemp("models")
    _write(models / "chosen", 1, 2, 3, more="version_policy { specific { versions: [ 1, 3 ] } }")
    _write(models / "inside", inner="reshape { shape: [ 2, 2 ] }")
    with tritonserver.Server(model_repository=str(models)) as server:
        yield server


def test_the_versions_that_are_named_are_served(server: tritonserver.Server) -> None:
    ready = [version for version in (1, 2, 3) if server.model("chosen", version).ready()]
    assert ready == [1, 3]


def test_a_model_sees_an_input_in_the_shape_of_its_reshape(server: tritonserver.Server) -> None:
    """This one gives back what it has got."""
    (response,) = server.model("inside").infer(inputs={"X": np.zeros(4, np.float32)})
    assert np.from_dlpack(response.outputs["Y"]).shape == (2, 2)


@pytest.mark.slow
@pytest.mark.contract("I-19")
def test_samples_are_run_before_the_model_is_ready(tmp_path: Path) -> None:
    folder = tmp_path / "warmed"
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(_WARMED)
    (folder / "1" / "model.py").write_text(_NOTING)
    with tritonserver.Server(model_repository=str(tmp_path)) as server:
        assert server.model("warmed").ready()
        noted = (folder / "1" / "note").read_text().splitlines()
    assert noted == ["nothing"] * 6 + ["anything"]
