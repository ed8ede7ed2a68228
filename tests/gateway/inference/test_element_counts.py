"""Elements of BYTES tensors over HTTP: how many there may be, and who counts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.serving import FakeServer, connected
from penstock.core.errors import InvalidRequestError
from penstock.core.request import InferenceRequest
from penstock.core.tensor import CutLengthError, DataType, Tensor
from penstock.gateway.inference.infer import ElementCounts

REFUSAL = "input tensor 'IN' for model 'numbers' has more than 20000 elements of BYTES."
ELEMENT = b"\2\0\0\0ab"


def of_elements(count: int, data: bytes = b"") -> InferenceRequest:
    tensor = Tensor(DataType.BYTES, [count], data or ELEMENT * count)
    return InferenceRequest("numbers", inputs={"IN": tensor})


async def counted(request: InferenceRequest, most: int = 20_000) -> Tensor:
    counts = ElementCounts(most)
    await counts.count(counts.uncounted(request))
    return request.inputs["IN"]


@pytest.mark.parametrize("count", [8193, 20_000])
async def test_many_elements_are_counted_before_admission(count: int) -> None:
    assert (await counted(of_elements(count))).count == count


async def test_few_are_left_to_admission() -> None:
    assert (await counted(of_elements(8192))).count is None


def test_too_many_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="more than 20000 elements of BYTES"):
        ElementCounts(20_000).uncounted(of_elements(20_001))


async def test_error_of_counting_is_kept_for_admission() -> None:
    """Which would else have to count once more, in one step."""
    tensor = await counted(of_elements(10_000, ELEMENT * 9_999 + b"\2\0"))
    assert isinstance(tensor.count, CutLengthError)


@pytest.mark.parametrize("behind", [0, 1 << 20])
async def test_binary_tensors_of_too_many_elements_are_400(behind: int) -> None:
    """Whether the body is of the usual form and answered at once, or read as it comes."""
    server, data = FakeServer(), ELEMENT * 20_001
    server.most_elements = 20_000
    tensor: dict[str, Any] = {"name": "IN", "datatype": "BYTES", "shape": [20_001]}
    tensor["parameters"] = {"binary_data_size": len(data)}
    text = json.dumps({"inputs": [tensor], "id": "7" * behind}).encode()
    headers = {"inference-header-content-length": str(len(text))}
    async with connected(server) as client:
        answer = await client.post("/v2/models/numbers/infer", content=text + data, headers=headers)
    assert answer.status_code == 400
    assert answer.json()["error"].startswith(REFUSAL)
    assert server.requests == []


async def test_templates_of_requests_are_no_way_around() -> None:
    server, data = FakeServer(), ELEMENT * 20_001
    server.most_elements = 20_000
    tensor: dict[str, Any] = {"name": "IN", "datatype": "BYTES", "shape": [20_001]}
    tensor["parameters"] = {"binary_data_size": len(data)}
    text = json.dumps({"inputs": [tensor]}).encode()
    headers = {"inference-header-content-length": str(len(text))}
    async with connected(server) as client:
        answers = [
            await client.post("/v2/models/numbers/infer", content=text + data, headers=headers)
            for _ in range(5)
        ]
    assert [answer.status_code for answer in answers] == [400] * 5
