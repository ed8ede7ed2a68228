"""Messages of servers that write tensors in other ways than Triton's."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.protocol import grpc_service_pb2 as pb
from penstock_client.client import DataType
from penstock_client.client.grpc_messages import decode
from penstock_client.client.request import InferRequest

_REQUEST = InferRequest("m", "", {})
_FIELDS = {
    "BOOL": ("bool_contents", [True, False]),
    "INT8": ("int_contents", [-128, 127]),
    "INT16": ("int_contents", [-(1 << 15), 1]),
    "INT32": ("int_contents", [-(1 << 31), 1]),
    "INT64": ("int64_contents", [-(1 << 63), 1]),
    "UINT8": ("uint_contents", [255, 0]),
    "UINT16": ("uint_contents", [65535, 0]),
    "UINT32": ("uint_contents", [(1 << 32) - 1, 0]),
    "UINT64": ("uint64_contents", [(1 << 64) - 1, 0]),
    "FP32": ("fp32_contents", [0.5, -2.0]),
    "FP64": ("fp64_contents", [0.1, -2.0]),
    "BYTES": ("bytes_contents", [b"\xff", b""]),
}


@pytest.mark.parametrize("datatype", _FIELDS)
def test_outputs_in_typed_fields_are_outputs(datatype: str) -> None:
    name, values = _FIELDS[datatype]
    message = pb.ModelInferResponse(model_name="m")
    output = message.outputs.add(name="OUT", datatype=datatype, shape=[1, 2])
    getattr(output.contents, name).extend(values)
    result = decode(message, _REQUEST)
    assert result.tensor("OUT").datatype is DataType(datatype)
    assert result["OUT"].shape == (1, 2)
    assert result["OUT"].reshape(-1).tolist() == values
    assert result["OUT"].dtype == DataType(datatype).numpy


def test_raw_contents_count_where_there_are_some() -> None:
    message = pb.ModelInferResponse(model_name="m")
    message.outputs.add(name="OUT", datatype="INT32", shape=[2])
    message.raw_output_contents.append(np.array([3, 4], np.int32).tobytes())
    assert decode(message, _REQUEST)["OUT"].tolist() == [3, 4]
