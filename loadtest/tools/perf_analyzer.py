"""Triton's perf_analyzer against this server in all modes that are for it, with its own tables.

    python -m loadtest.tools.perf_analyzer [MODE ...]

Not among them are its service kinds for other servers (tfserving, torchserve) and for a server
inside of its own process (triton_c_api), and CUDA memory, which wants a GPU.
"""

from __future__ import annotations

import argparse
import csv
import os
import ssl
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from loadtest.places import results_file
from loadtest.process import Server, penstock
from loadtest.report import Row, show
from loadtest.tools.analyzer_files import (
    tls_options,
    write_certificates,
    write_inputs,
    write_models,
    write_secure_model,
)
from loadtest.tools.analyzer_modes import MODES, PROFILE, Mode, Places, Secure
from loadtest.tools.outcome import failed_by_reason
from loadtest.tools.programs import ToolError, program, run_program

_WINDOW = ["--measurement-interval={window}", "--max-trials=6", "--stability-percentage=99999"]
_TIMEOUT = 180.0


@dataclass(frozen=True, slots=True)
class Report:
    """What perf_analyzer ended with, printed, and wrote into its table."""

    status: int
    printed: str
    table: Sequence[Mapping[str, str]]


def run_mode(mode: Mode, places: Places, window: int = 200) -> Report:
    """Run perf_analyzer in a mode, with windows of so many milliseconds; raises `ToolError`."""
    return run(mode.model, mode.arguments, places, window)


def run(model: str, arguments: str, places: Places, window: int = 200) -> Report:
    """Run perf_analyzer with these arguments, in which places are named; raises `ToolError`."""
    table = places.folder / "table.csv"
    for old in (table, places.folder / PROFILE):  # which it does not overwrite
        old.unlink(missing_ok=True)
    binary = program("perf_analyzer")
    found = {**places.named(), "window": str(window)}
    words = [word.format(**found) for word in [*arguments.split(), *_WINDOW]]
    libraries = f"{Path(binary).resolve().parent / 'lib'}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    command = [binary, "-m", model, *words, "-f", str(table)]
    done = run_program(command, _TIMEOUT, {"LD_LIBRARY_PATH": libraries})
    rows = list(csv.DictReader(table.read_text().splitlines())) if table.exists() else []
    return Report(done.status, done.output + done.errors, rows)


@contextmanager
def _places(folder: Path) -> Iterator[Places]:
    models, secure_model = write_models(folder / "models"), write_secure_model(folder / "secure")
    write_inputs(folder)
    write_certificates(folder)
    trace = f"--trace-config=triton,file={folder / 'trace.json'}"
    client = ssl.create_default_context()
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    client.load_cert_chain(folder / "client.pem", folder / "client.key")
    with (
        penstock(models, "--allow-client-shm=true", trace) as plain,
        penstock(secure_model, *tls_options(folder, mutual=False), tls=client) as secure,
        penstock(secure_model, *tls_options(folder, mutual=True), tls=client) as mutual,
    ):
        http = f"127.0.0.1:{plain.http_port}"
        yield Places(plain.target, http, _metrics(plain), _secure(secure), _secure(mutual), folder)


def _secure(server: Server) -> Secure:
    grpc, http = f"localhost:{server.grpc_port}", f"https://localhost:{server.http_port}"
    return Secure(grpc, http, _metrics(server))


def _metrics(server: Server) -> str:
    return f"http://127.0.0.1:{server.metrics_port}/metrics"


def main() -> None:
    """Run the modes that are named, or all, and print perf_analyzer's figures."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.tools.perf_analyzer")
    parser.add_argument("modes", nargs="*", metavar="MODE", help=f"of: {', '.join(MODES)}")
    parser.add_argument("--window", type=int, default=1000, help="milliseconds of a measurement")
    parser.add_argument("--verbose", action="store_true", help="print its reports, too")
    parser.add_argument("--json", type=results_file, help="where to write the table")
    chosen = parser.parse_args()
    if unknown := set(chosen.modes) - set(MODES):
        parser.error(f"there is no mode '{sorted(unknown)[0]}'")
    try:
        program("perf_analyzer")
    except ToolError as error:
        sys.exit(str(error))
    rows: list[Row] = []
    faults: list[str] = []
    with tempfile.TemporaryDirectory() as folder, _places(Path(folder)) as found:
        for name in chosen.modes or MODES:
            try:
                rows += _measured(name, found, chosen.window, chosen.verbose, faults)
            except ToolError as error:
                faults.append(f"{name}: {error}")
    if rows:
        show("perf_analyzer; times in ms", rows, chosen.json)
    sys.exit("\n".join(faults) or 0)


def _measured(
    name: str, places: Places, window: int, verbose: bool, faults: list[str]
) -> list[Row]:
    """The rows of a mode, with its errors; what is wrong with it is added to the `faults`."""
    before = _failed(places)
    report = run_mode(MODES[name], places, window)
    errors = _failed(places) - before
    if verbose or report.status:
        print(report.printed)
    if report.status or errors:
        faults.append(f"{name}: ended with status {report.status}, {errors} requests failed")
    return list(_rows(name, report, errors))


def _failed(places: Places) -> int:
    """Requests that the servers have failed so far."""
    pages = (places.metrics, places.secure.metrics, places.mutual.metrics)
    return sum(sum(failed_by_reason(page).values()) for page in pages)


def _rows(name: str, report: Report, errors: int) -> Iterator[Row]:
    columns = {"a second": "Inferences/Second", "queue": "Server Queue"}
    columns |= {"infer": "Server Compute Infer", "p50": "p50 latency", "p99": "p99 latency"}
    for row in report.table or [{}]:
        first = next(iter(row.items()), ("", ""))
        times = {
            title: float(row[column]) / (1 if title == "a second" else 1e3)
            if row.get(column)
            else "-"
            for title, column in columns.items()
        }
        yield {"mode": name, "load": " ".join(first), **times, "errors": str(errors)}


if __name__ == "__main__":
    main()
