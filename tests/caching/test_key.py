"""Keys: which requests are equal."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.caching.key import CacheKeys
from penstock.core.request import InferenceRequest, RequestScope
from penstock.core.tensor import DataType, Tensor

pytestmark = pytest.mark.contract("RC-03")

KEYS = CacheKeys("m", 1)
ZEROS = Tensor.from_numpy(np.zeros((2, 2), np.int32))
REQUEST = InferenceRequest("m", inputs={"A": ZEROS, "B": ZEROS})


def test_equal_requests_have_one_key() -> None:
    other = Tensor(DataType.INT32, (2, 2), memoryview(bytes(16)))
    again = InferenceRequest("m", inputs={"B": other, "A": other})
    assert KEYS.key(REQUEST) == KEYS.key(again)


def test_fields_hidden_from_the_model_do_not_change_the_key() -> None:
    other = REQUEST._replace(
        id="7", model_version="1", priority=3, timeout=5, scope=RequestScope(deadline=1.0)
    )
    assert KEYS.key(REQUEST) == KEYS.key(other)


@pytest.mark.parametrize(
    "changes",
    [
        {"inputs": {"A": ZEROS}},
        {"inputs": {"A": ZEROS, "C": ZEROS}},
        {"inputs": {"A": ZEROS, "B": ZEROS.reshaped((4, 1))}},
        {"inputs": {"A": ZEROS, "B": Tensor(DataType.UINT32, (2, 2), ZEROS.buffer)}},
        {"inputs": {"A": ZEROS, "B": Tensor.from_numpy(np.eye(2, dtype=np.int32))}},
        {"requested_outputs": ("OUT",)},
        {"parameters": {"temperature": 1.0}},
    ],
)
def test_fields_visible_to_the_model_change_the_key(changes: dict[str, Any]) -> None:
    assert KEYS.key(REQUEST) != KEYS.key(REQUEST._replace(**changes))


@pytest.mark.contract("RC-12")
def test_a_prompt_that_begins_as_another_is_another() -> None:
    """Prefixes are what an engine's own cache is about."""
    prompts = [Tensor.from_strings([text]) for text in ("Once upon", "Once upon a time")]
    keys = {KEYS.key(InferenceRequest("m", inputs={"A": prompt})) for prompt in prompts}
    assert len(keys) == 2


@pytest.mark.parametrize("keys", [CacheKeys("n", 1), CacheKeys("m", 2), CacheKeys("m", 1, b"x")])
def test_models_versions_and_loads_have_different_keys(keys: CacheKeys) -> None:
    assert KEYS.key(REQUEST) != keys.key(REQUEST)


@given(st.lists(st.binary(max_size=6), min_size=1, max_size=3), st.data())
def test_bytes_do_not_move_from_one_input_to_the_next(
    parts: list[bytes], data: st.DataObject
) -> None:
    """However the same bytes are split over the inputs, only the same split has the same key."""
    others = data.draw(st.lists(st.binary(max_size=6), min_size=1, max_size=3))

    def request(split: list[bytes]) -> InferenceRequest:
        tensors = {str(at): Tensor(DataType.UINT8, (len(b),), b) for at, b in enumerate(split)}
        return InferenceRequest("m", inputs=tensors)

    assert (KEYS.key(request(parts)) == KEYS.key(request(others))) == (parts == others)
