"""Tokens of text encoders: for requests that ask for them, and with their padding in traces."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from penstock.backend import Array, InferenceRequest, Timeline


def note_tokens(
    requests: Sequence[InferenceRequest], rows: Sequence[int], lengths: Array, runs: Sequence[Array]
) -> None:
    """Add the facts of the requests of a batch that are traced.

    `rows` are the texts of each request, `lengths` the tokens of each text, `runs` the texts that
    each run of the graph computes together, as long as the longest of them.
    """
    timelines = [request.scope.timeline for request in requests]
    if not any(timelines):
        return
    widths = np.empty_like(lengths)
    for places in runs:
        widths[places] = max(1, lengths[places].max(initial=0))
    at = 0
    for request, timeline, count in zip(requests, timelines, rows, strict=True):
        own = slice(at, at + count)
        at += count
        if timeline is not None:
            _note(timeline, request.model_name, lengths[own], widths[own], len(runs))


def report_tokens(
    requests: Sequence[InferenceRequest],
    rows: Sequence[int],
    lengths: Array,
    loop: asyncio.AbstractEventLoop,
) -> None:
    """Report the tokens of the requests of a batch that ask for them, on their event loop.

    To be called on the instance's thread, before the batch is answered; for `rows` and `lengths`
    see `note_tokens`.
    """
    reports = []
    at = 0
    for request, count in zip(requests, rows, strict=True):
        if (report := request.scope.report_usage) is not None:
            tokens = int(lengths[at : at + count].sum())
            reports.append(partial(report, tokens, 0, 0))
        at += count
    if reports:
        loop.call_soon_threadsafe(_call_each, reports)


def _call_each(reports: Sequence[Callable[[], None]]) -> None:
    for report in reports:
        report()


def _note(timeline: Timeline, model: str, lengths: Array, widths: Array, runs: int) -> None:
    # A new mapping, since this is the instance's thread: where the client has left, the event loop
    # may be reading the old one.
    timeline.facts = timeline.facts | {
        "gen_ai.operation.name": "embeddings",
        "gen_ai.provider.name": "onnxruntime",
        "gen_ai.request.model": model,
        "gen_ai.usage.input_tokens": int(lengths.sum()),
        "penstock.encoder.padded_tokens": int(widths.sum()),
        "penstock.encoder.runs": runs,
    }
