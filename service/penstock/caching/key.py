"""`CacheKeys`: keys of the response cache, a hash of each request."""

from __future__ import annotations

from hashlib import blake2b

from penstock.core.request import InferenceRequest

_DIGEST_SIZE = 16


class CacheKeys:
    """Computes the cache keys of requests to one model version.

    A key is a hash of the model, its version, the names, datatypes, shapes and bytes of the inputs,
    the requested outputs, and the parameters that the model sees. Triton leaves out datatypes,
    shapes, outputs and parameters, so requests that differ only in these get each other's responses
    there. `salt` separates different loads of a version.
    """

    def __init__(self, model: str, version: int, salt: bytes = b"") -> None:
        self._seed = blake2b(repr((model, version, salt)).encode(), digest_size=_DIGEST_SIZE)

    def key(self, request: InferenceRequest) -> bytes:
        """The key of a request; equal requests have equal keys."""
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
    """The number of bytes that hashing a request reads."""
    return sum(tensor.nbytes for tensor in request.inputs.values())
