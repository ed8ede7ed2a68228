"""Models for clients: `copy`, `repeat`, `length`, `waits`, and `story`."""

from __future__ import annotations

from pathlib import Path

from harness.repeat_model import REPEAT

_COPY = """
backend: "identity"
max_batch_size: 8
input { name: "TEXT" data_type: TYPE_STRING dims: [ -1 ] optional: true }
input { name: "NUMBERS" data_type: TYPE_FP32 dims: [ 2, -1 ] optional: true }
input { name: "SMALL" data_type: TYPE_INT8 dims: [ 1 ] optional: true }
input { name: "HALF" data_type: TYPE_BF16 dims: [ -1 ] optional: true }
output { name: "TEXT" data_type: TYPE_STRING dims: [ -1 ] }
output { name: "NUMBERS" data_type: TYPE_FP32 dims: [ 2, -1 ] }
output { name: "SMALL" data_type: TYPE_INT8 dims: [ 1 ] }
output { name: "HALF" data_type: TYPE_BF16 dims: [ -1 ] }
"""

_STORY = """
import asyncio
import json
from pathlib import Path

from penstock.model import DataType, Input, Model, ModelConfig, Output, Response


class Story(Model):
    config = ModelConfig(
        input=(
            Input("text_input", DataType.BYTES, dims=(1,)),
            Input("stream", DataType.BOOL, dims=(1,), optional=True),
            Input("sampling_parameters", DataType.BYTES, dims=(1,), optional=True),
        ),
        output=(Output("text_output", DataType.BYTES, dims=(-1,)),),
    )

    async def infer(self, request):
        options = json.loads(request.text("sampling_parameters"))
        if options.get("show"):
            yield Response({"text_output": [json.dumps(getattr(request.core, options["show"]))]})
            return
        if options.get("tell"):
            core = request.core
            told = [request.id, core.priority, core.correlation_id, core.sequence_start]
            yield Response({"text_output": [json.dumps([*told, dict(request.parameters)])]})
            return
        if options.get("n", 1) > 1:
            yield Response({"text_output": ["one", "other"]})
            return
        try:
            for number in range(options["max_tokens"]):
                yield Response({"text_output": [f"{request.text('text_input')}{number} "]})
            if "note" in options:
                await asyncio.Event().wait()
            if options.get("fails"):
                raise ValueError("the story has no end")
        finally:
            if "note" in options:
                Path(options["note"]).write_text("left")
"""

LENGTH = """
import numpy as np

from penstock.model import DataType, Input, Model, ModelConfig, Output, Response, UnavailableError


class Length(Model):
    config = ModelConfig(
        input=(Input("TEXT", DataType.BYTES, dims=(1,)),),
        output=(Output("VECTOR", DataType.FP32, dims=(2,)),),
    )

    def __init__(self):
        self._asked = set()

    async def infer(self, request):
        text = request.text("TEXT")
        if text == "bad":
            raise ValueError(f"a bad text: {request.id}, {request.core.priority}")
        if text == "busy" and request.id not in self._asked:
            self._asked.add(request.id)
            raise UnavailableError("try again")
        scale = request.parameters.get("scale", 1)
        return Response({"VECTOR": np.array([len(text) * scale, 1.0], np.float32)})
"""

_WAITS = """
import asyncio
from pathlib import Path

from penstock.model import DataType, Input, Model, ModelConfig, Output


class Waits(Model):
    config = ModelConfig(
        input=(Input("NOTE", DataType.BYTES, dims=(1,)),),
        output=(Output("NEVER", DataType.BYTES, dims=(1,)),),
    )

    async def infer(self, request):
        note = Path(request.text("NOTE"))
        note.with_suffix(".begun").touch()
        try:
            await asyncio.Event().wait()
        finally:
            note.touch()
"""


def write_client_models(repository: Path) -> Path:
    """Write the models; returns the folder."""
    for name, config in {
        "copy": _COPY,
        "repeat": REPEAT,
        "story": "",
        "length": "",
        "waits": "",
    }.items():
        (repository / name / "1").mkdir(parents=True)
        if config:
            (repository / name / "config.pbtxt").write_text(config)
    (repository / "story" / "1" / "model.py").write_text(_STORY)
    (repository / "length" / "1" / "model.py").write_text(LENGTH)
    (repository / "waits" / "1" / "model.py").write_text(_WAITS)
    return repository
