"""Results in files: the best settings, all figures as JSON and CSV, and a page."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from shutil import rmtree
from typing import Any

from penstock_client import __version__
from penstock_client.perf.report.html import html_report as perf_report
from penstock_client.tune.choice import MODELS, Figures, broken, standing
from penstock_client.tune.errors import TuneError
from penstock_client.tune.measured import Measured, Ranking, Row, by_model, mebibytes
from penstock_client.tune.model_files import CONFIG, ModelFiles
from penstock_client.tune.report.html import html_report
from penstock_client.tune.session import Outcome
from penstock_client.tune.settings import engine_changes
from penstock_client.tune.space import Changes, label

_LONG = ("curves", "windows")
"""Figures that only charts need."""


def write_results(outcome: Outcome) -> list[Path]:
    """Write everything; the paths. Raises `TuneError`."""
    try:
        return list(_write(outcome))
    except OSError as error:
        raise TuneError(f"results cannot be written: {error}") from error


def _write(outcome: Outcome) -> Iterator[Path]:
    folder, ranking = outcome.plan.output, outcome.ranking
    folder.mkdir(parents=True, exist_ok=True)
    if ranking.winner is not None:
        yield from _write_variant(outcome, ranking.winner.variant, folder / "best")
    yield from _write_top(outcome)
    if ranking.rows:
        page = folder / "report.html"
        page.write_text(html_report(outcome))
        yield page
    results = folder / "results.json"
    results.write_text(json.dumps(document(outcome), indent=1) + "\n")
    yield results
    if ranking.rows:
        table = folder / "results.csv"
        _write_csv(table, outcome)
        yield table


def _write_top(outcome: Outcome) -> Iterator[Path]:
    """A folder for each of the best variants; those of an earlier search go."""
    folder = outcome.plan.output / "top"
    for old in folder.glob("[0-9]*"):
        rmtree(old)
    for number, row in enumerate(outcome.ranking.rows[: outcome.plan.top], 1):
        list(_write_variant(outcome, row.variant, folder / str(number)))
        yield folder / str(number)


def _write_variant(outcome: Outcome, variant: Measured, folder: Path) -> Iterator[Path]:
    """The files of the models that a variant changes, and its loads as perf reports them.

    Those of composing models are in folders of their names.
    """
    rmtree(folder, ignore_errors=True)  # of an earlier search that this one goes on with
    folder.mkdir(parents=True)
    for files, own in outcome.composition.divided(variant.changes):
        if files is outcome.composition.main:
            yield from _write_model(files, own, folder)
        elif own:
            yield from _write_model(files, own, folder / files.name)
    page = folder / "perf.html"
    page.write_text(perf_report(_perf_document(outcome, variant)))
    yield page


def _write_model(files: ModelFiles, changes: Changes, folder: Path) -> Iterator[Path]:
    folder.mkdir(exist_ok=True)
    config = folder / CONFIG
    config.write_text(files.config_text(changes))
    yield config
    if engine_changes(changes) and files.engine_path is not None:
        engine = folder / files.engine_path
        engine.parent.mkdir(exist_ok=True)
        engine.write_text(files.engine_text(changes))
        yield engine


def _perf_document(outcome: Outcome, variant: Measured) -> dict[str, Any]:
    """The loads of one variant as `penstock perf` would have written them."""
    return {
        "model": outcome.plan.name,
        "targets": [label(variant.changes)],
        "arguments": ["-m", outcome.plan.model, *outcome.plan.perf],
        "points": [each for figures in variant.points for each in by_model(figures)],
    }


def document(outcome: Outcome) -> dict[str, Any]:
    """All figures but those of charts."""
    ranking = outcome.ranking
    aims, winner = ranking.aims, ranking.winner
    return {
        "tool": f"penstock tune {__version__}",
        "model": outcome.plan.name,
        "mode": outcome.plan.mode,
        "objectives": {each.name: abs(each.weight) for each in aims.objectives},
        "limits": [
            {"figure": each.figure, "min": each.least, "max": each.largest} for each in aims.limits
        ],
        "ended": outcome.ended,
        "best": None if winner is None else _choice(winner),
        "check": None if outcome.check is None else outcome.check.comparison,
        "closest": None if ranking.closest is None else _choice(ranking.closest),
        "front": [
            {"changes": variant.changes, "load": figures["load"]["label"]}
            for variant, figures in ranking.front()
        ],
        "variants": [_variant(each, ranking) for each in ranking.variants],
    }


def _choice(row: Row) -> dict[str, Any]:
    return {"changes": row.variant.changes, "load": row.figures["load"]["label"]}


def _variant(measured: Measured, ranking: Ranking) -> dict[str, Any]:
    return {
        "changes": measured.changes,
        "settings": measured.settings,
        "failure": measured.failure or None,
        "keeps_limits": measured.standing(ranking.aims).kept,
        "loads": [_short(figures) for figures in measured.points],
    }


def _short(figures: Figures) -> dict[str, Any]:
    """Figures without those of charts."""
    found = {name: value for name, value in figures.items() if name not in _LONG}
    if MODELS in found:
        found[MODELS] = {name: _short(own) for name, own in found[MODELS].items()}
    return found


def _write_csv(path: Path, outcome: Outcome) -> None:
    """A row for each load of each variant; the first columns have Model Analyzer's names."""
    rows = [
        _csv_row(outcome, measured, model, own)
        for measured in outcome.ranking.variants
        for figures in measured.points
        for model, own in figures.get(MODELS, {outcome.plan.model: figures}).items()
    ]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(name for row in rows for name in row)))
        writer.writeheader()
        writer.writerows(rows)


def _csv_row(
    outcome: Outcome, measured: Measured, model: str, figures: Figures
) -> Mapping[str, Any]:
    ranking = outcome.ranking
    latency = figures["latency_ms"] or {}
    times = {f"{name} Latency (ms)": latency.get(name) for name in ("p50", "p90", "p95", "p99")}
    kept = standing(figures, ranking.aims).kept and not measured.failure
    return {
        "Model": model,
        "Load": figures["load"]["label"],
        **measured.settings,
        "Satisfies Constraints": "Yes" if kept else "No",
        "Throughput (infer/sec)": figures["inferences_per_second"],
        "Avg Latency (ms)": latency.get("mean"),
        **times,
        "RAM Usage (MB)": _megabytes(figures.get("memory_bytes")),
        "Max GPU Memory Usage (MB)": _megabytes(figures.get("gpu_memory_bytes")),
        "Goodput (infer/sec)": figures.get("goodput"),
        "Responses/Second": figures.get("responses_per_second"),
        "Tokens/Second": figures.get("tokens_per_second"),
        "Failed": figures["failed"],
        "Limits Broken": "; ".join(broken(figures, ranking.limits)),
    }


def _megabytes(size: float | None) -> float | None:
    return None if size is None else mebibytes(size)
