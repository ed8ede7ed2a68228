"""What requests have in common that differ in the contents of their tensors only."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from penstock.core.region import RegionSlice
from penstock.core.request import InferenceRequest
from penstock.core.tensor import Buffer, DataType, Tensor
from penstock.protocol import grpc_service_pb2 as pb

DATATYPES = {datatype.value: datatype for datatype in DataType if datatype is not DataType.INVALID}

LARGE = 8 << 10
"""Bytes of a message from which a copy of its tensors costs more than a view."""


class RequestForm:
    """The head of such requests, decoded, and where their messages have the contents.

    `spans` are where the raw contents begin and end in a message, one an input; `beginning` is
    what stands before the first.
    """

    __slots__ = ("_inputs", "_literals", "_outputs", "beginning", "head", "spans")

    def __init__(
        self, head: pb.ModelInferRequest, message: Buffer, spans: Sequence[tuple[int, int]]
    ) -> None:
        self.head = head
        self._inputs = [
            (tensor.name, DATATYPES.get(tensor.datatype, DataType.INVALID), tuple(tensor.shape))
            for tensor in head.inputs
        ]
        self._outputs = tuple(output.name for output in head.outputs)
        self.spans = tuple(spans)
        self.beginning = bytes(message[: spans[0][0]])
        self._literals = [
            (end, begin, bytes(message[end:begin])) for (_, end), (begin, _) in pairwise(spans)
        ]

    @staticmethod
    def fits(head: pb.ModelInferRequest) -> bool:
        """Whether requests with this head need no look at anything but the tensors' contents."""
        if head.id or head.parameters or not head.inputs:
            return False
        if len({tensor.name for tensor in head.inputs}) != len(head.inputs):
            return False
        if any(tensor.parameters or tensor.HasField("contents") for tensor in head.inputs):
            return False
        return not any(output.parameters for output in head.outputs)

    def contents(self, message: Buffer) -> list[Buffer] | None:
        """The raw contents of a message of this length and beginning, if it is of this form."""
        for begin, end, literal in self._literals:
            if message[begin:end] != literal:
                return None
        if len(message) >= LARGE:
            message = memoryview(message)
        return [message[begin:end] for begin, end in self.spans]

    def request(
        self,
        raw: Sequence[Buffer],
        deadline: float | None,
        places: Sequence[RegionSlice | None] = (),
    ) -> InferenceRequest:
        """The request with these contents, of which some lie in `places`."""
        inputs = {
            name: Tensor(datatype, shape, buffer)
            for (name, datatype, shape), buffer in zip(self._inputs, raw, strict=True)
        }
        if places:
            for tensor, place in zip(inputs.values(), places, strict=True):
                tensor.shared = place
        head = self.head
        return InferenceRequest(
            head.model_name,
            head.model_version,
            "",
            inputs,
            self._outputs,
            deadline=deadline,
            form=self,
        )
