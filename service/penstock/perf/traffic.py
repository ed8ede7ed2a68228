"""The requests of a load, made for one server from what was asked for."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate

from penstock.perf.errors import PerfError, Status
from penstock.perf.load.job import Payload, Sequences
from penstock.perf.load.plan import Traffic
from penstock.perf.options import GENERATE, GRPC, INFER, OPENAI, Target, What
from penstock.perf.requests.input_file import read_streams
from penstock.perf.requests.kserve import (
    Form,
    generate_payloads,
    grpc_payloads,
    http_payloads,
)
from penstock.perf.requests.language import openai_payloads, prompt_steps
from penstock.perf.requests.lengths import parse_lengths
from penstock.perf.requests.prompts import Prompt, make_prompts, prompts_of, with_outputs
from penstock.perf.requests.regions import shared
from penstock.perf.requests.tensors import Step, batched, made_steps
from penstock.perf.server import GrpcServer, HttpServer, ModelInfo, Server
from penstock.perf.wire.asking import NoAnswerError, RefusedError, ask_json

_WORDS = "uniform:16:32"  # of prompts, where no length is asked for


def server_of(target: Target, what: What) -> Server | None:
    """The server to ask about models and statistics; `None` for OpenAI's endpoints."""
    if what.wire == OPENAI:
        return None
    if what.wire == GRPC:
        return GrpcServer(target.endpoint, what.headers)
    return HttpServer(target.endpoint, what.headers, target.prefix)


@contextmanager
def traffic_for(target: Target, what: What) -> Iterator[Traffic]:
    """What to send to a server, which is asked what the model takes; raises `PerfError`."""
    server = server_of(target, what)
    if server is None:
        yield _openai(target, what)
        return
    model = server.model(what.model, what.version)
    streamed = what.streamed or (model.decoupled and what.wire == GRPC)
    rows = _rows(model, what)
    if what.prompts.wanted:
        streams = [batched(prompt_steps(model, _prompts(what), streamed), rows)]
    elif what.input_file is not None:
        found = read_streams(what.input_file, model, what.tensors.shapes)
        streams = [batched(steps, rows) for steps in found]
    else:
        streams = [batched(made_steps(model, what.tensors), rows)]
    steps = [step for each in streams for step in each]
    form = _form(what, server)
    if not what.shared_memory:
        payloads = _payloads(target, what, model, steps, form, streamed)
        yield _traffic(target, what, payloads, streamed, streams)
        return
    with shared(server, model, steps, form, what.output_size) as form:
        payloads = _payloads(target, what, model, steps, form, streamed)
        yield _traffic(target, what, payloads, streamed, streams)


def _form(what: What, server: Server) -> Form:
    """How requests are written: tensors as JSON where it is asked for, or the server wants it."""
    inputs, outputs = what.json_inputs, what.json_outputs
    if what.endpoint == INFER and (inputs is None or outputs is None):
        wanted = not server.takes_binary()
        inputs = wanted if inputs is None else inputs
        outputs = wanted if outputs is None else outputs
    return Form(what.parameters, what.headers, bool(inputs), bool(outputs))


def _rows(model: ModelInfo, what: What) -> int:
    """The batch dimension of requests; 0 for a model that has none."""
    if what.endpoint == GENERATE:
        return 0
    if what.batch > max(1, model.largest_batch):
        raise PerfError(
            f"-b {what.batch}: model '{model.name}' has a max_batch_size of {model.largest_batch}"
        )
    return what.batch if model.largest_batch else 0


def _payloads(
    target: Target, what: What, model: ModelInfo, steps: Sequence[Step], form: Form, streamed: bool
) -> list[Payload]:
    if what.wire == GRPC:
        return grpc_payloads(target.endpoint, model, steps, form, streamed)
    if what.endpoint == GENERATE:
        return generate_payloads(target.endpoint, model, steps, form, streamed, target.prefix)
    return http_payloads(target.endpoint, model, steps, form, target.prefix)


def _traffic(
    target: Target,
    what: What,
    payloads: Sequence[Payload],
    streamed: bool,
    streams: Sequence[Sequence[Step]],
) -> Traffic:
    sequences = _sequences(what, [len(each) for each in streams]) if what.sequences.count else None
    return Traffic(
        target.endpoint,
        what.wire != GRPC,
        streamed,
        tuple(payloads),
        sequences,
        what.sequences.count,
    )


def _sequences(what: What, sizes: Sequence[int]) -> Sequences:
    wanted = what.sequences
    chance = random.Random(what.seed)
    spread = wanted.length * wanted.variation / 100
    lengths = tuple(
        max(1, round(wanted.length + chance.uniform(-spread, spread))) for _ in range(64)
    )
    firsts = accumulate(sizes, initial=0)
    streams = tuple(zip(firsts, sizes, strict=False))
    return Sequences(lengths, wanted.first_id, wanted.ids, streams)


def _prompts(what: What) -> list[Prompt]:
    wanted = what.prompts
    if wanted.texts:
        return with_outputs(list(wanted.texts), wanted.output, what.seed)
    if wanted.lengths:
        return prompts_of(wanted.lengths, wanted.prefix, what.seed)
    words = wanted.words or parse_lengths(_WORDS)
    return make_prompts(wanted.count, words, wanted.output, wanted.prefix, what.seed)


def _openai(target: Target, what: What) -> Traffic:
    path = (target.prefix.removesuffix("/v1")) + "/v1/models"
    try:
        found = ask_json(target.endpoint, "GET", path, what.headers)
    except NoAnswerError as error:
        text = f"no answer over HTTP from {target.endpoint.authority}: {error}"
        raise PerfError(text, Status.UNREACHABLE) from error
    except RefusedError:
        found = {}  # many servers have no list of models
    names = [each.get("id") for each in found.get("data", ())] if isinstance(found, dict) else []
    if names and what.model not in names:
        text = f"{target.endpoint.authority} has no model '{what.model}', but {', '.join(names)}"
        raise PerfError(text, Status.UNREACHABLE)
    payloads = openai_payloads(
        target.endpoint,
        what.model,
        _prompts(what),
        kind=what.endpoint,
        streamed=what.streamed,
        headers=what.headers,
        extra=what.extra,
        prefix=target.prefix,
    )
    return Traffic(target.endpoint, True, what.streamed, tuple(payloads))
