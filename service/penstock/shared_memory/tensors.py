"""Tensors in shared-memory regions: reading inputs, writing outputs."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.errors import InternalError
from penstock.core.region import RegionSlice
from penstock.core.tensor import DataType, Tensor


def tensor_in(place: RegionSlice, datatype: DataType, shape: Sequence[int]) -> Tensor:
    """An input as a view of the client's memory; BYTES are copied.

    Their lengths are checked, and the client could change them afterwards.
    """
    data = place.read()
    if datatype is DataType.BYTES:
        copy = Tensor(datatype, shape, bytes(data))
        place.release()
        return copy
    return Tensor(datatype, shape, data, place)


def put(name: str, tensor: Tensor, place: RegionSlice) -> None:
    """Write the output `name` to the client's memory; raises when it is too large (GP-12).

    A model process may have written it there already.
    """
    if tensor.shared is place:
        return
    if tensor.nbytes > place.size:
        raise InternalError(
            f"shared memory size specified with the request for output '{name}' ({place.size}"
            f" bytes) should be at least {tensor.nbytes} bytes to hold the results"
        )
    place.write(tensor.buffer)
