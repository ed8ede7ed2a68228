"""The command line of `penstock perf`, read into `Options`."""

from __future__ import annotations

import json
from argparse import ArgumentTypeError, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock_client.perf.arguments import target
from penstock_client.perf.errors import PerfError
from penstock_client.perf.load.plan import Limits, Point
from penstock_client.perf.options import (
    GENERATE,
    GRPC,
    HTTP,
    INFER,
    OPENAI,
    Options,
    Outputs,
    Prompts,
    RequestOptions,
    SequenceOptions,
    Target,
)
from penstock_client.perf.parser import command_parser
from penstock_client.perf.requests.language import CHAT, OPENAI_PATHS
from penstock_client.perf.requests.tensors import TensorOptions
from penstock_client.perf.trace_file import Trace, read_intervals, read_trace
from penstock_client.reading.address import GRPC_PORT, HTTP_PORT, AddressError, named_server

_PORTS = {GRPC: GRPC_PORT, HTTP: HTTP_PORT, OPENAI: HTTP_PORT}


def read_options(words: Sequence[str], environment: Mapping[str, str]) -> Options:
    """The options; ends the program with a message where they are wrong.

    Where they name no server, a variable of the environment may.
    """
    parser = command_parser()
    chosen = parser.parse_args(words)
    try:
        _choose_server(chosen, environment)
        _choose_model(chosen)
        return _options(chosen, words)
    except (AddressError, ArgumentTypeError, PerfError) as error:
        parser.error(str(error))


def _choose_server(chosen: Namespace, environment: Mapping[str, str]) -> None:
    """Fill in the address and the protocol where no option names them."""
    named = None if chosen.url or chosen.compare else named_server(environment)
    if chosen.wire is None:  # https:// is gRPC with TLS, too
        by_http = named.by_http if named is not None else (chosen.url or "").startswith("http://")
        chosen.wire = HTTP if by_http else GRPC
    if named is not None:
        address = named.grpc if chosen.wire == GRPC else named.http
        chosen.url = str(address)


def _choose_model(chosen: Namespace) -> None:
    """Fill in the model, which may stand with an option or without; raises `PerfError`."""
    if chosen.model and chosen.named:
        raise PerfError(f"the model is named twice: '{chosen.named}' and --model '{chosen.model}'")
    chosen.model = chosen.model or chosen.named
    if not chosen.model:
        raise PerfError("name a model")


def _options(chosen: Namespace, words: Sequence[str]) -> Options:
    trace = read_trace(chosen.trace) if chosen.trace else None
    points = _points(chosen, trace)
    return Options(
        targets=_targets(chosen),
        request=_request(chosen, trace),
        points=points,
        limits=_limits(chosen, trace),
        goals=chosen.goodput,
        outputs=Outputs(
            chosen.json, chosen.csv, chosen.html, chosen.requests_csv, chosen.gate, chosen.quiet
        ),
        rounds=chosen.rounds,
        words=tuple(words),
    )


def _targets(chosen: Namespace) -> list[Target]:
    addresses = chosen.compare or [chosen.url or f"localhost:{_PORTS[chosen.wire]}"]
    tls = {
        "root_certificates": chosen.tls_ca,
        "certificate": chosen.tls_cert,
        "private_key": chosen.tls_key,
        "unverified": chosen.tls_unverified,
    }
    pids = [*chosen.server_pid, 0, 0]
    return [
        target(text, _PORTS[chosen.wire], tls, chosen.metrics_url, pids[number])
        for number, text in enumerate(addresses)
    ]


def _points(chosen: Namespace, trace: Trace | None) -> list[Point]:
    given = [
        name
        for name in ("concurrency", "rate", "intervals", "trace")
        if getattr(chosen, name) is not None
    ]
    if len(given) > 1:
        raise PerfError(f"--{given[0]} and --{given[1]} exclude each other")
    if trace is not None:
        return [Point(times=trace.times)]
    if chosen.intervals is not None:
        return [Point(gaps=read_intervals(chosen.intervals))]
    if chosen.rate is not None:
        poisson = chosen.distribution == "poisson"
        return [Point(rate=rate, poisson=poisson) for rate in chosen.rate]
    if chosen.sequences:
        return [Point(concurrency=chosen.sequences)]
    return [Point(concurrency=int(each)) for each in chosen.concurrency or (1,)]


def _limits(chosen: Namespace, trace: Trace | None) -> Limits:
    counted = chosen.requests or (len(trace.times) if trace else 0)
    return Limits(
        duration=chosen.duration,
        warmup=0.0 if counted else chosen.warmup,
        requests=counted,
        stability=chosen.stable or 0.0,
        window=chosen.window,
        most_windows=chosen.max_windows,
        drain=chosen.drain,
        timeout=chosen.timeout,
        processes=chosen.processes,
        connections=chosen.connections,
        most_in_flight=chosen.max_in_flight,
        seed=chosen.seed,
    )


def _request(chosen: Namespace, trace: Trace | None) -> RequestOptions:
    endpoints = {GRPC: [INFER], HTTP: [INFER, GENERATE], OPENAI: list(OPENAI_PATHS)}[chosen.wire]
    endpoint = chosen.endpoint or (CHAT if chosen.wire == OPENAI else INFER)
    if endpoint not in endpoints:
        raise PerfError(f"-i {chosen.wire} has no --endpoint {endpoint}: {', '.join(endpoints)}")
    if chosen.shared_memory == "system" and (chosen.wire == OPENAI or endpoint == GENERATE):
        raise PerfError("--shared-memory is for inference requests of tensors")
    streamed = chosen.streaming or (trace is not None and chosen.wire == OPENAI)
    if streamed and chosen.wire == HTTP and endpoint == INFER:
        raise PerfError("-i http streams with --endpoint generate only")
    made, zero = chosen.input_data in ("random", "zero"), chosen.input_data == "zero"
    return RequestOptions(
        model=chosen.model,
        version=chosen.version,
        wire=chosen.wire,
        endpoint=endpoint,
        streamed=streamed,
        batch=chosen.batch,
        input_file=None if made else Path(chosen.input_data),
        tensors=TensorOptions(
            zero,
            dict(chosen.shape),
            chosen.string_length,
            chosen.string_data,
            chosen.seed,
            chosen.input_count,
        ),
        prompts=_prompts(chosen, trace),
        sequences=SequenceOptions(
            chosen.sequences,
            chosen.sequence_length,
            chosen.sequence_length_variation,
            *chosen.sequence_id_range,
        ),
        parameters=dict(chosen.request_parameter),
        headers=dict(chosen.header),
        extra=_extra(chosen.extra_body),
        json_inputs=_is_json(chosen.input_tensor_format),
        json_outputs=_is_json(chosen.output_tensor_format),
        shared_memory=chosen.shared_memory == "system",
        output_size=chosen.output_shared_memory_size,
        seed=chosen.seed,
    )


def _is_json(form: str | None) -> bool | None:
    return None if form is None else form == "json"


def _prompts(chosen: Namespace, trace: Trace | None) -> Prompts:
    texts = list(chosen.prompt)
    if chosen.prompt_file is not None:
        try:
            lines = chosen.prompt_file.read_text("utf-8").splitlines()
        except (OSError, UnicodeError) as error:
            raise PerfError(f"{chosen.prompt_file}: {error}") from error
        found = [line for line in lines if line.strip()]
        if not found:
            raise PerfError(f"{chosen.prompt_file}: there is no prompt in it")
        texts += found
    return Prompts(
        tuple(texts),
        chosen.prompt_words,
        chosen.output_tokens,
        chosen.shared_prefix,
        chosen.prompt_count,
        trace.lengths if trace else (),
    )


def _extra(text: str) -> Mapping[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError as error:
        raise PerfError(f"--extra-body is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise PerfError("--extra-body is not an object of JSON")
    return found
