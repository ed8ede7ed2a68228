"""Codec of the inference endpoint: bodies of JSON and binary tensors to and from core values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

from penstock.core.buffer import Buffer
from penstock.core.errors import InvalidRequestError
from penstock.core.region import RegionSlice
from penstock.core.request import InferenceRequest, InferenceResponse, RequestScope
from penstock.core.request_limits import check_outputs, repeated_output
from penstock.core.tensor import Tensor
from penstock.gateway.body import RequestBody
from penstock.gateway.inference.body_memory import BodyMemory, Place, nowhere
from penstock.gateway.inference.inputs import (
    BinarySizes,
    InputReader,
    binary_sizes,
    check_binary_sizes,
)
from penstock.gateway.inference.parameters import read_parameters
from penstock.gateway.json.fields import (
    ABSENT,
    as_bool,
    as_list,
    as_string,
    as_unsigned,
    member,
    required,
    unable,
)
from penstock.gateway.json.tensors import is_short, tensor_text, tensor_to_text
from penstock.gateway.json.text import dump, parse_tensors
from penstock.gateway.json_bodies import JsonBodies
from penstock.gateway.shared_memory import RegionSlices, RemoteRegions, shared_slice, with_regions
from penstock.shared_memory.registry import NO_REGIONS, Regions
from penstock.shared_memory.tensors import put


@dataclass(frozen=True, slots=True)
class OutputEncoding:
    """The encoding of each output: as bytes behind the JSON, or in it (HI-09, HI-10).

    `binary` applies to outputs that the request does not name.
    """

    binary: bool = False
    by_name: Mapping[str, bool] = field(default_factory=dict)

    def is_binary(self, name: str) -> bool:
        return self.by_name.get(name, self.binary)


@dataclass(frozen=True, slots=True)
class EncodedResponse:
    """The JSON of a response in parts, and the bytes of its binary outputs, which follow it."""

    header: Sequence[bytes]
    tensors: Sequence[Buffer]


async def read_request(
    model: str,
    version: str,
    body: RequestBody,
    json_length: int,
    bodies: JsonBodies,
    regions: Regions = NO_REGIONS,
    memory: BodyMemory | None = None,
) -> tuple[InferenceRequest, OutputEncoding]:
    """Read and decode a request whose first `json_length` bytes are JSON (HI-01, HI-08)."""
    header = await body.read_until(json_length)
    if len(header) > json_length:
        header = header[:json_length]
    if bodies.takes(header):
        json = parse_tensors(bytes(header))
        rest = await _binary_tensors(model, binary_sizes(json), body, json_length)
        place = nowhere if memory is None else memory.places(rest, json_length)
        return decode_request(model, version, json, rest, bodies.limit, regions, place)
    sizes: BinarySizes = []
    if not body.ends_at(json_length):
        # The rest is read before the tensors are made: they are decoded once it is there.
        sizes = await bodies.decode_tensors(header, binary_sizes, body)
    rest = await _binary_tensors(model, sizes, body, json_length)
    sizes_of = {name: entry.region.byte_size for name, entry in regions.entries.items()}
    request, form = await bodies.decode_tensors(
        header,
        partial(
            decode_request,
            model,
            version,
            rest=rest,
            limit=bodies.limit,
            regions=RemoteRegions(sizes_of),
        ),
        body,
    )
    if sizes_of:
        request = with_regions(request, regions)
    return request, form


async def _binary_tensors(
    model: str, sizes: BinarySizes, body: RequestBody, json_length: int
) -> memoryview:
    """The binary data behind the JSON, for inputs of these sizes.

    It is received only if its size is the one that the inputs declare, as far as is known before,
    so that a client cannot fill the memory with bytes of no tensor.
    """
    if sizes is None:  # the request will be refused, whatever follows
        return memoryview(await body.read_until(json_length)).toreadonly()[json_length:]
    if body.declared is not None:
        check_binary_sizes(sizes, body.declared - json_length, model)
    end = json_length + sum(size for _, size in sizes)
    body.check_size(end)
    # One byte more shows whether a body in chunks ends there.
    data = await body.read_until(end if body.declared is not None else end + 1)
    return memoryview(data).toreadonly()[json_length:]


def decode_request(
    model: str,
    version: str,
    json: Any,
    rest: memoryview,
    limit: int,
    regions: RegionSlices = NO_REGIONS,
    place: Place = nowhere,
) -> tuple[InferenceRequest, OutputEncoding]:
    """Decode a request of parsed JSON and the binary data behind it, which lies at `place`."""
    request_id = read_id(json)
    parameters = read_parameters(json)
    reader = InputReader(model, request_id, rest, limit, regions, place)
    inputs = reader.read(as_list(required(json, "inputs"), unable("inputs")))
    outputs, classes, places = _requested_outputs(json, regions)
    request = InferenceRequest(
        model_name=model,
        model_version=version,
        id=request_id,
        inputs=inputs,
        requested_outputs=tuple(outputs),
        parameters=parameters.custom,
        classes=classes,
        output_places=places,
        scope=RequestScope(),
        **parameters.fields,
    )
    return request, OutputEncoding(parameters.binary_output, outputs)


def read_id(json: Any) -> str:
    """The request's id; empty without one."""
    given = member(json, "id")
    return "" if given is ABSENT else as_string(given, unable("id"))


def encode_response(
    request: InferenceRequest, version: str, response: InferenceResponse, form: OutputEncoding
) -> EncodedResponse | None:
    """The body of a response (HI-02, HI-11); `None` if it takes long, see `encode_large`.

    Raises for outputs that JSON cannot carry.
    """
    outputs = wanted_outputs(request, response)
    texts: dict[str, list[bytes]] = {}
    for name, tensor in outputs.items():
        if name in request.output_places or form.is_binary(name):
            continue
        if not is_short(tensor):
            return None
        texts[name] = [tensor_text(name, tensor)]
    return _joined(request, version, response, form, texts)


async def encode_large(
    request: InferenceRequest, version: str, response: InferenceResponse, form: OutputEncoding
) -> EncodedResponse:
    """As `encode_response`, of any size: the event loop has its turns meanwhile."""
    texts = {
        name: await tensor_to_text(name, tensor)
        for name, tensor in wanted_outputs(request, response).items()
        if not (name in request.output_places or form.is_binary(name))
    }
    return _joined(request, version, response, form, texts)


def _joined(
    request: InferenceRequest,
    version: str,
    response: InferenceResponse,
    form: OutputEncoding,
    texts: Mapping[str, list[bytes]],
) -> EncodedResponse:
    """The JSON around the texts of outputs, and the outputs that follow it."""
    parts: list[bytes] = []
    tensors: list[Buffer] = []
    for name, tensor in wanted_outputs(request, response).items():
        if (place := request.output_places.get(name)) is not None:
            put(name, tensor, place)
            parts.append(_described(name, tensor.datatype.value, tensor.shape) + b"}")
        elif form.is_binary(name):
            described = _described(name, tensor.datatype.value, tensor.shape)
            parts.append(b'%b,"parameters":{"binary_data_size":%d}}' % (described, tensor.nbytes))
            tensors.append(tensor.buffer)
        else:
            parts.append(_described(name, tensor.datatype.value, tensor.shape) + b',"data":')
            parts += texts[name]
            parts.append(b"}")
        parts.append(b",")
    if parts:
        parts.pop()
    beginning = _named(request.model_name, version)
    if request.id or response.parameters:
        json: dict[str, Any] = {"id": request.id} if request.id else {}
        json |= {"model_name": request.model_name, "model_version": version}
        if response.parameters:
            json["parameters"] = dict(response.parameters)
        beginning = dump(json)[:-1] + b',"outputs":['
    parts.insert(0, beginning)
    parts.append(b"]}")
    return EncodedResponse(parts, tensors)


def wanted_outputs(request: InferenceRequest, response: InferenceResponse) -> Mapping[str, Tensor]:
    """The outputs that the request names; all if it names none."""
    wanted = request.requested_outputs
    if not wanted:
        return response.outputs
    return {name: tensor for name, tensor in response.outputs.items() if name in wanted}


def _requested_outputs(
    json: Any, regions: RegionSlices
) -> tuple[dict[str, bool], dict[str, int], dict[str, RegionSlice]]:
    """For each output that the request names: whether it is binary, its class count, its region.

    Raises for an output that is named twice.
    """
    outputs: dict[str, bool] = {}
    classes: dict[str, int] = {}
    places: dict[str, RegionSlice] = {}
    given = member(json, "outputs")
    items = [] if given is ABSENT else as_list(given, unable("outputs"))
    check_outputs(items)
    for item in items:
        name = as_string(required(item, "name"), unable("name"))
        parameters = member(item, "parameters")
        binary = member(parameters, "binary_data")
        binary = binary is not ABSENT and as_bool(binary, unable("binary_data"))
        count = _class_count(parameters)
        _check_one_form(parameters, binary)
        place = shared_slice(parameters, regions)
        if name in outputs:
            raise repeated_output(name)
        outputs[name] = binary
        if count:
            classes[name] = count
        if place is not None:
            places[name] = place
    return outputs, classes, places


def _class_count(parameters: Any) -> int:
    """The number of classes that an output's parameters request; 0 for the plain tensor."""
    classes = member(parameters, "classification")
    if classes is ABSENT:
        return 0
    return as_unsigned(classes, "Unable to set 'classification': ")


def _check_one_form(parameters: Any, binary: bool) -> None:
    """An output in shared memory cannot be binary or a classification too (HI-19)."""
    if member(parameters, "shared_memory_region") is ABSENT:
        return
    classes = member(parameters, "classification") is not ABSENT
    other = "classification" if classes else "binary_data" if binary else ""
    if other:
        raise InvalidRequestError(f"Output can't set both 'shared_memory_region' and '{other}'")


@lru_cache(1024)
def _named(model: str, version: str) -> bytes:
    """The beginning of a response without an id, up to its outputs."""
    return dump({"model_name": model, "model_version": version})[:-1] + b',"outputs":['


@lru_cache(1024)
def _described(name: str, datatype: str, shape: Sequence[int]) -> bytes:
    """The description of an output, which may go on."""
    sizes = [int(size) for size in shape]
    return dump({"name": name, "datatype": datatype, "shape": sizes})[:-1]
