"""The requests of a load, made for one server from the options."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import accumulate

from penstock_client.perf.errors import PerfError, Status
from penstock_client.perf.load.job import Payload, Sequences
from penstock_client.perf.load.plan import Traffic
from penstock_client.perf.options import GENERATE, GRPC, INFER, OPENAI, RequestOptions, Target
from penstock_client.perf.requests.input_file import read_streams
from penstock_client.perf.requests.kserve import (
    Form,
    generate_payloads,
    grpc_payloads,
    http_payloads,
)
from penstock_client.perf.requests.language import openai_payloads, prompt_steps
from penstock_client.perf.requests.lengths import parse_lengths
from penstock_client.perf.requests.prompts import Prompt, make_prompts, prompts_of, with_outputs
from penstock_client.perf.requests.regions import shared
from penstock_client.perf.requests.tensors import Step, batched, made_steps
from penstock_client.perf.server import GrpcServer, HttpServer, ModelInfo, Server
from penstock_client.perf.wire.asking import NoAnswerError, RefusedError, ask_json

_WORDS = "uniform:16:32"  # of prompts, where no length is asked for


def server_of(target: Target, request: RequestOptions) -> Server | None:
    """The server to ask about models and statistics; `None` for OpenAI's endpoints."""
    if request.wire == OPENAI:
        return None
    if request.wire == GRPC:
        return GrpcServer(target.endpoint, request.headers)
    return HttpServer(target.endpoint, request.headers, target.prefix)


@contextmanager
def traffic_for(target: Target, request: RequestOptions) -> Iterator[Traffic]:
    """The requests for a server, which is asked for the model's inputs; raises `PerfError`."""
    server = server_of(target, request)
    if server is None:
        yield _openai(target, request)
        return
    model = server.model(request.model, request.version)
    streamed = request.streamed or (model.decoupled and request.wire == GRPC)
    streams = _streams(model, request, streamed)
    steps = [step for each in streams for step in each]
    form = _form(request, server)
    regions = shared(server, model, steps, form, request.output_size)
    with regions if request.shared_memory else nullcontext(form) as form:
        payloads = _payloads(target, request, model, steps, form, streamed)
        yield _traffic(target, request, payloads, streamed, streams)


def _streams(model: ModelInfo, request: RequestOptions, streamed: bool) -> list[list[Step]]:
    """The contents of requests, by the stream that sequences take them from."""
    rows = _rows(model, request)
    if request.prompts.wanted:
        return [batched(prompt_steps(model, _prompts(request), streamed), rows)]
    if request.input_file is not None:
        found = read_streams(request.input_file, model, request.tensors.shapes)
        return [batched(steps, rows) for steps in found]
    return [batched(made_steps(model, request.tensors), rows)]


def _form(request: RequestOptions, server: Server) -> Form:
    """The form of requests: tensors as JSON where it is asked for, or the server wants it."""
    inputs, outputs = request.json_inputs, request.json_outputs
    if request.endpoint == INFER and (inputs is None or outputs is None):
        wanted = not server.takes_binary()
        inputs = wanted if inputs is None else inputs
        outputs = wanted if outputs is None else outputs
    return Form(request.parameters, request.headers, bool(inputs), bool(outputs))


def _rows(model: ModelInfo, request: RequestOptions) -> int:
    """The batch dimension of requests; 0 for a model that has none."""
    if request.endpoint == GENERATE:
        return 0
    if request.batch > max(1, model.largest_batch):
        raise PerfError(
            f"-b {request.batch}: model '{model.name}' has a max_batch_size of"
            f" {model.largest_batch}"
        )
    return request.batch if model.largest_batch else 0


def _payloads(
    target: Target,
    request: RequestOptions,
    model: ModelInfo,
    steps: Sequence[Step],
    form: Form,
    streamed: bool,
) -> list[Payload]:
    if request.wire == GRPC:
        return grpc_payloads(target.endpoint, model, steps, form, streamed)
    if request.endpoint == GENERATE:
        return generate_payloads(target.endpoint, model, steps, form, streamed, target.prefix)
    return http_payloads(target.endpoint, model, steps, form, target.prefix)


def _traffic(
    target: Target,
    request: RequestOptions,
    payloads: Sequence[Payload],
    streamed: bool,
    streams: Sequence[Sequence[Step]],
) -> Traffic:
    slots = request.sequences.count
    sequences = _sequences(request, [len(each) for each in streams]) if slots else None
    return Traffic(
        target.endpoint,
        request.wire != GRPC,
        streamed,
        tuple(payloads),
        sequences,
        slots,
    )


def _sequences(request: RequestOptions, sizes: Sequence[int]) -> Sequences:
    wanted = request.sequences
    chance = random.Random(request.seed)
    spread = wanted.length * wanted.variation / 100
    lengths = tuple(
        max(1, round(wanted.length + chance.uniform(-spread, spread))) for _ in range(64)
    )
    firsts = accumulate(sizes, initial=0)
    streams = tuple(zip(firsts, sizes, strict=False))
    return Sequences(lengths, wanted.first_id, wanted.ids, streams)


def _prompts(request: RequestOptions) -> list[Prompt]:
    wanted = request.prompts
    if wanted.texts:
        return with_outputs(list(wanted.texts), wanted.output, request.seed)
    if wanted.lengths:
        return prompts_of(wanted.lengths, wanted.prefix, request.seed)
    words = wanted.words or parse_lengths(_WORDS)
    return make_prompts(wanted.count, words, wanted.output, wanted.prefix, request.seed)


def _openai(target: Target, request: RequestOptions) -> Traffic:
    path = (target.prefix.removesuffix("/v1")) + "/v1/models"
    try:
        found = ask_json(target.endpoint, "GET", path, request.headers)
    except NoAnswerError as error:
        text = f"no answer over HTTP from {target.endpoint.authority}: {error}"
        raise PerfError(text, Status.UNREACHABLE) from error
    except RefusedError:
        found = {}  # many servers have no list of models
    names = [each.get("id") for each in found.get("data", ())] if isinstance(found, dict) else []
    if names and request.model not in names:
        text = f"{target.endpoint.authority} has no model '{request.model}', but {', '.join(names)}"
        raise PerfError(text, Status.UNREACHABLE)
    payloads = openai_payloads(
        target.endpoint,
        request.model,
        _prompts(request),
        kind=request.endpoint,
        streamed=request.streamed,
        headers=request.headers,
        extra=request.extra,
        prefix=target.prefix,
    )
    return Traffic(target.endpoint, True, request.streamed, tuple(payloads))
