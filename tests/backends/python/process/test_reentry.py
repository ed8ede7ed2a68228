"""`Reentry`: which calls of a model to itself are certain to wait for ever."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core.request import InferenceRequest
from penstock_backends.python.process.reentry import Reentry


@pytest.mark.parametrize(
    ("groups", "refused"),
    [
        ([{"count": 1}], True),
        ([{}], True),
        ([{"count": 1, "gpus": [3]}], True),
        ([{"count": 2}], False),
        ([{"count": 1, "gpus": [0, 1]}], False),
        ([{"count": 1}, {"count": 1}], False),
    ],
)
def test_a_model_may_call_itself_where_another_instance_could_answer(
    groups: list[dict[str, Any]], refused: bool
) -> None:
    reentry = Reentry({"name": "m", "instance_group": groups}, 1, "m_0", lambda: True)
    assert (reentry.refusal(InferenceRequest("m", "1")) is not None) is refused
