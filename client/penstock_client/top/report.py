"""One reading for scripts: a table as text, or a JSON object."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from math import isfinite
from typing import Any

from rich.console import Console
from rich.text import Text

from penstock_client.reading.counters import ProcessKey, ProcessNumbers
from penstock_client.reading.fetch import AnswersFetcher, fetch_page
from penstock_client.reading.kserve import ServerAnswers
from penstock_client.reading.metrics_page import MetricsPage
from penstock_client.top.header import header
from penstock_client.top.model_view import ModelView
from penstock_client.top.options import Options
from penstock_client.top.poller import read_again
from penstock_client.top.readings import Readings
from penstock_client.top.tables import models_table, processes_table
from penstock_client.top.view import View, make_view, sort_models

WIDE = 4096
"""Cells of a line of the table: it is not cut where the width is unknown."""


def observe(options: Options) -> View:
    """The view after two readings, the interval apart; after one where no endpoint answers it."""
    page: Readings[MetricsPage] = Readings()
    answers: Readings[ServerAnswers] = Readings()
    fetcher = AnswersFetcher(options.http)
    for last in (False, True):
        began = time.monotonic()
        page = read_again(page, lambda: fetch_page(options.metrics))
        answers = read_again(answers, fetcher.fetch)
        if last or (page.error and answers.error):
            break
        time.sleep(max(0.0, began + options.interval - time.monotonic()))
    return make_view(page, answers, options.models)


def print_table(view: View, options: Options, console: Console) -> None:
    """The header, the models, and the model processes, if any."""
    now = time.monotonic()
    console.print(header(view, str(options.metrics), options.interval, now), soft_wrap=True)
    console.print()
    console.print(models_table(sort_models(view.models, options.sort), sort=options.sort))
    if view.processes:
        console.print(Text())
        console.print(processes_table(view.processes))


def as_json(view: View, options: Options) -> str:
    """One object on one line: rates per second, durations in seconds, sizes in bytes."""
    found = {
        "url": str(options.metrics),
        "http": str(options.http),
        "interval": options.interval,
        "server": view.server,
        "ready": view.ready,
        "problems": dict(view.problems),
        "totals": asdict(view.totals),
        "machine": asdict(view.machine),
        "not_loaded": view.not_loaded,
        "models": [_model(model) for model in sort_models(view.models, options.sort)],
        "processes": [_process(key, each) for key, each in view.processes.items()],
    }
    return json.dumps(_plain(found), allow_nan=False)


def _model(model: ModelView) -> dict[str, Any]:
    fields = asdict(model)
    del fields["key"]
    return {"name": model.key.name, "version": model.key.version, **fields}


def _process(key: ProcessKey, numbers: ProcessNumbers) -> dict[str, Any]:
    return {**key._asdict(), **asdict(numbers)}


def _plain(value: Any) -> Any:
    """The value with `null` for numbers that JSON does not have, and keys as text."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Mapping):
        return {_key(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    assert not is_dataclass(value)
    return value


def _key(key: Any) -> str:
    return f"{key:g}" if isinstance(key, float) else str(key)
