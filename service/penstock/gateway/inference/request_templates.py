"""A cache of the JSON of binary requests, which clients send again and again with other tensors."""

from __future__ import annotations

from typing import Generic, TypeVar

from penstock.core.request import InferenceRequest
from penstock.core.tensor import Tensor
from penstock.gateway.inference.body_memory import Place, nowhere
from penstock.gateway.inference.codec import OutputEncoding

Template = TypeVar("Template")
Key = tuple[str, str, bytes]

_MOST = 256
"""Templates that are cached."""

LONGEST = 1024
"""Bytes of the longest JSON that is cached."""


class RequestTemplate:
    """The part that requests with the same JSON share: all but the contents of tensors."""

    __slots__ = ("_inputs", "_outputs", "form", "size")

    def __init__(self, request: InferenceRequest, form: OutputEncoding) -> None:
        self._inputs = [
            (name, tensor.datatype, tensor.shape, tensor.nbytes)
            for name, tensor in request.inputs.items()
        ]
        self._outputs = request.requested_outputs
        self.form = form
        self.size = sum(size for _, _, _, size in self._inputs)

    @staticmethod
    def fits(request: InferenceRequest, size: int) -> bool:
        """Whether requests with this JSON, and `size` bytes behind it, differ in these alone.

        Tensors of clients' shared memory are not among these bytes, nor those in the JSON.
        """
        if not size or not differs_in_tensors_alone(request):
            return False
        return sum(tensor.nbytes for tensor in request.inputs.values()) == size

    def request(
        self, model: str, version: str, rest: memoryview, place: Place = nowhere
    ) -> InferenceRequest:
        """The request with these contents, `size` bytes, which may lie in shared memory."""
        inputs: dict[str, Tensor] = {}
        begin = 0
        for name, datatype, shape, size in self._inputs:
            end = begin + size
            contents = rest[begin:end]
            inputs[name] = Tensor(datatype, shape, contents, place(begin, contents))
            begin = end
        return InferenceRequest(model, version, "", inputs, self._outputs, template=self)


class RequestTemplates:
    """The templates of one endpoint."""

    def __init__(self) -> None:
        self._templates: TemplateCache[RequestTemplate] = TemplateCache()

    def find(self, model: str, version: str, json: bytes, size: int) -> RequestTemplate | None:
        """The template of requests with this JSON and `size` bytes behind it."""
        template = self._templates.get((model, version, json))
        return template if template is not None and template.size == size else None

    def add(self, json: bytes, request: InferenceRequest, form: OutputEncoding, size: int) -> None:
        """Remember a request that was decoded from this JSON and `size` bytes behind it."""
        if len(json) > LONGEST or not RequestTemplate.fits(request, size):
            return
        key = request.model_name, request.model_version, json
        self._templates.add(key, RequestTemplate(request, form))


class TemplateCache(Generic[Template]):
    """Templates by model, version and JSON; one is cached when it comes for the second time."""

    def __init__(self) -> None:
        self._templates: dict[Key, Template] = {}
        self._seen: set[Key] = set()

    @property
    def empty(self) -> bool:
        """Whether nothing can be found."""
        return not self._templates

    def get(self, key: Key) -> Template | None:
        """The template of a key."""
        return self._templates.get(key)

    def add(self, key: Key, template: Template) -> None:
        """Cache a template, unless its key comes for the first time."""
        if key not in self._seen:
            if len(self._seen) >= _MOST:
                self._seen.clear()
            self._seen.add(key)
            return
        if len(self._templates) >= _MOST:
            self._templates.clear()
        self._templates[key] = template


def differs_in_tensors_alone(request: InferenceRequest) -> bool:
    """Whether a request has nothing of its own but tensors, and wants tensors alone."""
    if request.id or request.parameters or request.classes:
        return False
    if request.output_places or request.priority or request.timeout:
        return False
    return not (request.correlation_id or request.sequence_start or request.sequence_end)
