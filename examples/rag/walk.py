"""Follows a question, with a picture and without, through the pipeline, as Jaeger has seen it.

    python -m examples.rag.walk [--picture trace.svg]

Starts Jaeger (of `.tools`) and a server with tracing, asks by `client.py`, and prints each trace
with the time of every step. Ends with status 1 if a step is not where it should be.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from examples.rag.build import write_repository
from examples.rag.drawings import drawn
from examples.traced_pipeline.jaeger_api import Span, wait_for_trace
from examples.traced_pipeline.walk import show
from examples.traced_pipeline.waterfall import draw

from deploy.observability.stack import Server, jaeger, server

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

PARENTS = {
    "rag": "InferRequest",
    "find": "rag",
    "retrieve": "find",
    "reranker": "find",
    "compose": "find",
    "tiny_llm": "rag",
    "prefill": "tiny_llm",
    "decode": "tiny_llm",
}
"""Spans of each trace, and what each is below; `minilm` is below `find` and `retrieve`."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--picture", type=Path, help="where to draw the trace of the picture")
    options = parser.parse_args()
    places = os.pathsep.join([str(ROOT / ".tools"), os.environ.get("PATH", "")])
    binary = shutil.which("jaeger", path=places)
    if binary is None:
        print("Jaeger is not installed: python tests/programs/install.py jaeger")
        return 1
    problems: list[str] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_repository(folder / "models")
        drawn("clock", random.Random(7)).save(folder / "clock.png")
        with jaeger(binary, folder) as traces:
            flags = [*traces.options(1), "--trace-config=opentelemetry,bsp_schedule_delay=200"]
            with server(folder / "models", folder, *flags) as served:
                for more in ([], [f"--image={folder / 'clock.png'}"]):
                    trace_id = ask(served, "What is this?" if more else "What is a lock?", more)
                    wanted = {*PARENTS, "minilm", *(["picture"] if more else [])}
                    spans = wait_for_trace(traces.url, trace_id, wanted, 20)
                    found = problems_of(spans, wanted)
                    show("with a picture" if more else "without one", trace_id, spans, found)
                    problems += found
                if options.picture is not None:
                    options.picture.write_text(draw(spans, "A question with a picture"))
    print("\n" + ("\n".join(problems) or "every step is where it should be"))
    return bool(problems)


def ask(served: Server, question: str, more: Sequence[str]) -> str:
    """Ask, and print the answer; the id of the trace."""
    trace_id = f"{random.getrandbits(128):032x}"
    command = [sys.executable, str(HERE / "client.py"), served.grpc, question, *more]
    subprocess.run([*command, f"--traceparent=00-{trace_id}-{1:016x}-01"], check=True)
    return trace_id


def problems_of(spans: Sequence[Span], wanted: set[str]) -> list[str]:
    """What is wrong with a trace."""
    by_id = {span.id: span for span in spans}
    problems = [f"no span '{name}'" for name in sorted(wanted - {span.name for span in spans})]
    for span in spans:
        above = by_id.get(span.parent)
        right = PARENTS.get(span.name)
        if right is not None and (above is None or above.name != right):
            problems.append(f"'{span.name}' is not below '{right}'")
    return problems


if __name__ == "__main__":
    sys.exit(main())
