"""The command line of `penstock tune`, read into a `Plan` for each model."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock_client.perf.arguments import target
from penstock_client.perf.errors import PerfError
from penstock_client.perf.gate import Limit, read_gate
from penstock_client.perf.load.plan import Point
from penstock_client.perf.reading import read_options
from penstock_client.reading.address import URL_VARIABLE, named_server
from penstock_client.tune.analyzer.file import read_analysis
from penstock_client.tune.choice import Aims, objective
from penstock_client.tune.composition import is_of_part, named_parts, part_setting
from penstock_client.tune.errors import TuneError
from penstock_client.tune.load.loads import Load, Loads
from penstock_client.tune.options import QUICK, Budget, Member, Plan, Remote, Serving, Trials
from penstock_client.tune.parser import command_parser
from penstock_client.tune.settings import BATCH, CACHE, DELAY, ENGINE, INSTANCES, PARAMETER
from penstock_client.tune.values import delays, switches, whole_numbers

_SWEEP = (1, 256)
_LOADS = {"concurrency", "sweep", "rate"}
_OWN_FLAGS = ("model-repository", "model-store", "model-control-mode", "log-file", "load-model")
_OWN_PERF = ("-m", "-u", "-c", "-r", "-b", "-d", "--model", "--url", "--concurrency", "--rate")
_LIMITS = {
    "max_p99": "latency_ms.p99",
    "max_ttft": "ttft_ms.p99",
    "max_itl": "per_token_ms.p99",
    "max_memory": "memory_bytes",
    "max_gpu_memory": "gpu_memory_bytes",
    "min_throughput": "inferences_per_second",
    "min_goodput": "goodput",
}


def read_plans(words: Sequence[str]) -> list[Plan]:
    """The plans; ends the program with a message where the options are wrong."""
    own, perf = _divided(words)
    parser = command_parser()
    chosen = parser.parse_args(own)
    try:
        if chosen.config_file is None:
            plans = [_plan(chosen, name, perf) for name in _named(chosen.models)]
            return [joined(plans, dict(chosen.weight))] if chosen.together else plans
        return _plans_of_file(parser, chosen, perf)
    except (ValueError, PerfError) as error:
        parser.error(str(error))


def _divided(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Our own words, and those behind `--`."""
    at = words.index("--") if "--" in words else len(words)
    return list(words[:at]), list(words[at + 1 :])


def _named(models: Sequence[str]) -> list[str]:
    if not models:
        raise TuneError("name a model")
    return list(dict.fromkeys(models))


def _plans_of_file(parser: ArgumentParser, chosen: Namespace, perf: Sequence[str]) -> list[Plan]:
    """The models of a file of Model Analyzer; what stands on the command line counts more."""
    analysis = read_analysis(chosen.config_file)
    if analysis.without_effect:
        names = ", ".join(analysis.without_effect)
        print(f"penstock tune: {chosen.config_file}: without effect here: {names}", file=sys.stderr)
    plans = []
    for name in _named(chosen.models or list(analysis.models)):
        words, further = analysis.models.get(name, analysis.everywhere)
        plans.append(_plan(_overlaid(parser.parse_args(words), chosen), name, [*further, *perf]))
    if not chosen.together and (not analysis.together or len(plans) == 1):
        return plans
    return [joined(plans, {**analysis.weights, **dict(chosen.weight)})]


def joined(plans: Sequence[Plan], weights: Mapping[str, float]) -> Plan:
    """One search for several models at the same time; raises `TuneError` where they differ.

    Settings of all but the first have the model's name in front.
    """
    first, *others = plans
    names = [each.model for each in plans]
    if not others:
        raise TuneError("--together is for several models")
    if unknown := sorted(weights.keys() - set(names)):
        raise TuneError(f"--weight {unknown[0]}: it is not one of {', '.join(names)}")
    for what, field in (
        ("objectives and constraints", "aims"),
        ("loads", "loads"),
        ("flags of the server", "serving"),
    ):
        if any(getattr(each, field) != getattr(first, field) for each in others):
            raise TuneError(f"models that are measured together have the same {what}")
    values = dict(first.values)
    for each in others:
        for name, own in each.values.items():
            values[name if is_of_part(name) else part_setting(each.model, name)] = own
    return replace(
        first,
        output=first.output.parent / "+".join(names),
        values=values,
        aims=replace(first.aims, weights=weights),
        parts=tuple(dict.fromkeys([*names[1:], *(p for each in plans for p in each.parts)])),
        together=tuple(Member(each.model, each.perf) for each in plans),
    )


def _overlaid(base: Namespace, chosen: Namespace) -> Namespace:
    """Options of a file with those of the command line over them."""
    given = {name: value for name, value in vars(chosen).items() if _is_given(value)}
    if given.keys() & _LOADS:
        base = Namespace(**{**vars(base), **dict.fromkeys(_LOADS)})
    return Namespace(**{**vars(base), **given})


def _is_given(value: Any) -> bool:
    """Whether an option stands on the command line; 0 is a value."""
    return value is not None and value is not False and value != []


def _plan(chosen: Namespace, model: str, further: Sequence[str]) -> Plan:
    _choose_server(chosen)
    if not chosen.model_repository and not chosen.remote:
        raise TuneError(
            "--model-repository is needed, the folder in which the model's folder is; or --url, a"
            " server that runs"
        )
    remote = _remote(chosen)
    perf = _perf_words(chosen, further)
    read_options(["-m", model, *perf], {})  # ends the program where they are wrong
    return Plan(
        model=model,
        repositories=tuple(chosen.model_repository),
        output=(chosen.output or Path("tuned")) / model,
        mode=chosen.mode or QUICK,
        values=_values(chosen),
        loads=_loads(chosen),
        aims=_aims(chosen),
        perf=perf,
        parts=(*chosen.composing, *named_parts(name for name, _ in chosen.field)),
        remote=remote,
        serving=_serving(chosen),
        budget=Budget(chosen.variants or 0, chosen.budget or 0.0),
        trials=_trials(chosen),
        rounds=3 if chosen.rounds is None else chosen.rounds,
        top=3 if chosen.top is None else chosen.top,
        resume=chosen.resume,
        quiet=chosen.quiet,
    )


def _choose_server(chosen: Namespace) -> None:
    """Fill in the server that the environment names, where no option says what to measure.

    Raises `TuneError` where it does not tell the port of gRPC: another server might be there.
    """
    named = None if chosen.model_repository or chosen.remote else named_server(os.environ)
    if named is not None:
        if named.guessed:
            raise TuneError(
                f"${URL_VARIABLE} names {named.http}, which does not tell the port of gRPC: name"
                " the server by --url HOST:PORT of its gRPC endpoint"
            )
        chosen.remote = str(named.grpc)
        chosen.remote_http = chosen.remote_http or str(named.http)
        chosen.remote_metrics = chosen.remote_metrics or str(named.metrics)


def _remote(chosen: Namespace) -> Remote | None:
    """The server to load variants into; raises `TuneError` for what cannot be had of it."""
    if not chosen.remote:
        given = [name for name in ("remote_http", "remote_metrics") if getattr(chosen, name)]
        if given:
            raise TuneError(f"--{given[0].replace('_', '-')} is for --remote")
        return None
    objectives = {each.name for each in chosen.objective}
    for name, asked in (
        ("--server-flag", chosen.server_flag),
        ("--env", chosen.env),
        ("--max-memory", chosen.max_memory),
        ("--objective memory", "memory" in objectives),
        ("--objective cpu", "cpu" in objectives),
    ):
        if asked:
            raise TuneError(f"{name} is for servers that penstock tune starts, not for --remote")
    try:
        grpc = target(chosen.remote, 8001, {}, None, 0).endpoint
        page = chosen.remote_metrics or f"{grpc.authority.rpartition(':')[0]}:8002"
        url = chosen.remote_http or f"{grpc.authority.rpartition(':')[0]}:8000"
        http = target(url, 8000, {}, page, 0)
    except ArgumentTypeError as error:
        raise TuneError(str(error)) from error
    assert http.metrics is not None
    return Remote(grpc, http.endpoint, http.metrics)


def _values(chosen: Namespace) -> dict[str, tuple[Any, ...]]:
    """Values by the names of dimensions."""
    found: dict[str, tuple[Any, ...]] = {}
    if chosen.instances:
        found[INSTANCES] = whole_numbers(chosen.instances)
    if chosen.batch_sizes:
        found[BATCH] = whole_numbers(chosen.batch_sizes)
    if chosen.queue_delays:
        found[DELAY] = delays(chosen.queue_delays)
    if chosen.cache:
        found[CACHE] = switches(chosen.cache)
    found |= {PARAMETER + name: tuple(map(_text, each)) for name, each in chosen.parameter}
    found |= {ENGINE + name: each for name, each in chosen.engine}
    return found | dict(chosen.field)


def _text(value: Any) -> str:
    """A parameter's value, which is text whatever it looks like."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _loads(chosen: Namespace) -> Loads:
    given = [name for name in sorted(_LOADS) if getattr(chosen, name)]
    if len(given) > 1:
        raise TuneError(f"--{given[0]} and --{given[1]} exclude each other")
    if chosen.rate:
        points = [Point(rate=float(each)) for each in whole_numbers(chosen.rate)]
    else:
        powers = _powers(*(chosen.sweep or _SWEEP))
        wanted = whole_numbers(chosen.concurrency) if chosen.concurrency else powers
        points = [Point(concurrency=each) for each in wanted]
    rows = whole_numbers(chosen.client_batch_sizes or ["1"])
    sweep = not chosen.concurrency and not chosen.rate and len(rows) == 1
    return Loads(tuple(Load(point, batch) for batch in rows for point in points), sweep)


def _powers(first: int, last: int) -> tuple[int, ...]:
    """The powers of two between two numbers; the first where there is none."""
    powers = (1 << power for power in range(31))
    return tuple(each for each in powers if first <= each <= last) or (first,)


def _trials(chosen: Namespace) -> Trials:
    usual = Trials(patience=chosen.patience or Trials().patience)
    if chosen.trials is None:
        return usual
    least, most = chosen.trials
    return replace(usual, least_share=0.0, most_share=0.0, least=least, most=most)


def _aims(chosen: Namespace) -> Aims:
    objectives = tuple(chosen.objective)
    if not objectives and chosen.goodput:
        objectives = (objective("goodput"),)
    if any(each.name == "goodput" for each in objectives) and not chosen.goodput:
        raise TuneError("--objective goodput needs --goodput, which says what is good")
    limits = [
        Limit(figure, *((value, None) if name.startswith("min") else (None, value)))
        for name, figure in _LIMITS.items()
        if (value := getattr(chosen, name)) is not None
    ]
    return Aims(objectives, (*limits, *(read_gate(chosen.limits) if chosen.limits else ())))


def _perf_words(chosen: Namespace, further: Sequence[str]) -> tuple[str, ...]:
    for word in further:
        if word.partition("=")[0] in _OWN_PERF:
            raise TuneError(f"{word} cannot stand behind --: penstock tune sets it itself")
    goals = [f"--goodput={goal.metric}:{goal.limit:g}" for goal in chosen.goodput]
    duration, warmup = chosen.duration or 5.0, 1.0 if chosen.warmup is None else chosen.warmup
    return (f"--duration={duration:g}", f"--warmup={warmup:g}", *goals, *further)


def _serving(chosen: Namespace) -> Serving:
    return Serving(
        tuple(server_flag(name, value) for name, value in chosen.server_flag),
        dict(chosen.env),
        chosen.load_timeout or Serving().load_seconds,
    )


def server_flag(name: str, value: str) -> str:
    """A flag of `penstock serve`; raises `TuneError` for those that are not the user's."""
    plain = name.lstrip("-").replace("_", "-")
    if plain in _OWN_FLAGS or plain.endswith(("-port", "-address")):
        raise TuneError(f"--server-flag {name}: penstock tune sets it itself")
    return f"--{plain}={value}"
