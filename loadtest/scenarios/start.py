"""How long a model in Python takes until it is ready, beside what importing numpy alone takes.

    python -m loadtest.scenarios.start

The floor is a fresh interpreter that imports numpy and ends, in the same run.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

from loadtest.process import Server, penstock
from loadtest.python_models import write_python_models
from loadtest.report import Row, arguments, median_rows, show

_TIMES = 10


def main() -> None:
    options = arguments(__doc__, timed=False).parse_args()
    with tempfile.TemporaryDirectory() as directory:
        repository = Path(directory)
        write_python_models(repository)
        with penstock(repository, "--model-control-mode=explicit") as server:
            rows = median_rows(options.rounds, lambda: [_row(server)])
    show("a model in Python is ready", rows, options.json)


def _row(server: Server) -> Row:
    numpy = _milliseconds(
        lambda: subprocess.run([sys.executable, "-c", "import numpy"], check=True)
    )
    loading = _milliseconds(lambda: _ask(server, "load"), lambda: _ask(server, "unload"))
    return {"import numpy ms": numpy, "load ms": loading, "beyond numpy ms": loading - numpy}


def _milliseconds(what: Callable[[], object], after: Callable[[], object] = lambda: None) -> float:
    times = []
    for _ in range(_TIMES):
        begun = time.perf_counter()
        what()
        times.append(time.perf_counter() - begun)
        after()
    return statistics.median(times) * 1e3


def _ask(server: Server, verb: str) -> None:
    url = f"http://127.0.0.1:{server.http_port}/v2/repository/models/identity/{verb}"
    urllib.request.urlopen(urllib.request.Request(url, method="POST")).close()


if __name__ == "__main__":
    main()
