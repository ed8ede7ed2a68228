"""When two requests are equal: `CacheKeys`."""

from __future__ import annotations

from hashlib import blake2b

from penstock.core.request import InferenceRequest

_DIGEST_SIZE = 16


class CacheKeys:
    """Makes the keys of the requests to one model version.

    A key is a hash of the model, its version, names, datatypes, shapes and bytes of the inputs,
    the outputs that are asked for and the parameters that the model sees. Triton leaves out
    datatypes, shapes, outputs and parameters, so there requests that differ in these alone get
    each other's answers. `salt` tells apart what was loaded at different times.
    """

    def __init__(self, model: str, version: int, salt: bytes = b"") -> None:
        self._seed = blake2b(repr((model, version, salt)).encode(), digest_size=_DIGEST_SIZE)

    def key(self, request: InferenceRequest) -> bytes:
        """The key of a request; equal requests have equal ones."""
        hashed = self._seed.copy()
        for name, tensor in sorted(request.inputs.items()):
            buffer = tensor.buffer
            about = (name, tensor.datatype.value, tensor.shape, tensor.nbytes)
            hashed.update(repr(about).encode())
            hashed.update(buffer)
        asked, parameters = sorted(request.requested_outputs), sorted(request.parameters.items())
        hashed.update(repr((asked, parameters)).encode())
        return hashed.digest()


def hashed_bytes(request: InferenceRequest) -> int:
    """How many bytes must be read to make a request's key."""
    return sum(tensor.nbytes for tensor in request.inputs.values())
