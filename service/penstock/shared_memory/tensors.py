"""Tensors in regions: inputs that are read there, and outputs that are put there."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.errors import InternalError
from penstock.core.region import RegionSlice
from penstock.core.tensor import DataType, Tensor


def tensor_in(place: RegionSlice, datatype: DataType, shape: Sequence[int]) -> Tensor:
    """An input over the client's memory; a copy of BYTES.

    What is checked of their lengths must stay true, and the client may write meanwhile.
    """
    data = place.read()
    if datatype is DataType.BYTES:
        copy = Tensor(datatype, shape, bytes(data))
        place.release()
        return copy
    return Tensor(datatype, shape, data, place)


def put(name: str, tensor: Tensor, place: RegionSlice) -> None:
    """Have the output `name` where the client wants it; raises when it is too large (GP-12).

    A model process may have put it there itself.
    """
    if tensor.shared is place:
        return
    if tensor.nbytes > place.size:
        raise InternalError(
            f"shared memory size specified with the request for output '{name}' ({place.size}"
            f" bytes) should be at least {tensor.nbytes} bytes to hold the results"
        )
    place.write(tensor.buffer)
