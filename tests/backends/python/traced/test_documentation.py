"""The examples of the page on tracing, served."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from backends.python.traced.house import TRACED, opened, own_marks, timeline_of
from rpc.serving import infer_request, output

_PAGE = Path(__file__).resolve().parents[4] / "docs" / "tracing.md"
_TENSORS = """
backend: "python"
input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""


@pytest.mark.slow
async def test_spans_of_the_examples_are_in_the_trace(tmp_path: Path) -> None:
    triton, own = re.findall(r"```python\n(.*?)```", _PAGE.read_text(), re.DOTALL)
    models = {"triton": (triton, _TENSORS), "own": (own, _TENSORS)}
    async with opened(tmp_path, models, config="") as house:
        for name in models:
            request = infer_request(name, IN=np.array([1, -4], np.float32))
            answer = await house.client.call("ModelInfer", request, metadata=[TRACED])
            assert output(answer, "OUT").tolist() == [0.25, -1]
            timeline = timeline_of(await house.trace(), name)
            assert [span[0] for span in timeline.spans] == ["normalize"]
        assert own_marks(timeline) == ["SCALED"]
