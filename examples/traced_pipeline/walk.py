"""Follows one question through the pipeline, as Jaeger has seen it.

    python -m examples.traced_pipeline.walk [--picture docs/images/trace.svg]

Starts Jaeger (of `.tools`, see `make observe`) and a server with tracing, asks the pipeline from
Python, with curl and, where Go is, from Go, and finds each trace by Jaeger's query API. Ends with
status 1 if one lacks a span, an event or a link, or has one below the wrong parent.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from examples.traced_pipeline.jaeger_api import Span, wait_for_trace
from examples.traced_pipeline.waterfall import as_rows, draw

from deploy.observability.stack import Jaeger, Server, jaeger, server
from penstock.demo.repository import write_demo

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
_PACKAGE = "penstock/examples/traced_pipeline/inference"
_PROTOC = "grpcio-tools==1.73.1"

PARENTS = {
    "rag": "InferRequest",
    "minilm": "rag",
    "retrieve": "rag",
    "passages": "retrieve",
    "search the index": "passages",
    "write prompt": "retrieve",
    "tiny_llm": "rag",
    "prefill": "tiny_llm",
    "decode": "tiny_llm",
}
"""Spans that each trace has, and what each is below."""

_TOGETHER = 6

EVENTS = {"tiny_llm": {"FIRST_TOKEN"}, "search the index": {"found"}}
"""Events that spans have."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--picture", type=Path, help="where to draw the trace of the first client")
    options = parser.parse_args()
    places = os.pathsep.join([str(ROOT / ".tools"), os.environ.get("PATH", "")])
    binary = shutil.which("jaeger", path=places)
    if binary is None:
        print("Jaeger is not installed: python tests/programs/install.py jaeger")
        return 1
    problems: list[str] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_models(folder / "models")
        with jaeger(binary, folder) as traces:
            settings = "mode=opentelemetry", "level=TIMESTAMPS", "rate=1"
            flags = [f"--trace-config={each}" for each in settings]
            flags.append(f"--trace-config=opentelemetry,url={traces.traces}")
            flags.append("--trace-config=opentelemetry,bsp_schedule_delay=200")
            with server(folder / "models", folder, *flags) as served:
                for client, command in clients(served, traces, folder):
                    trace_id = subprocess.check_output(command, text=True).split()[-1]
                    spans = wait_for_trace(traces.url, trace_id, set(PARENTS), 20)
                    found = problems_of(spans)
                    problems += [f"{client}: {problem}" for problem in found]
                    show(client, trace_id, spans, found)
                    if options.picture is not None and spans:
                        options.picture.write_text(draw(spans, f"A question asked by {client}"))
                        options.picture = None
                problems += ask_together(served, traces.url)
    print("\n" + ("\n".join(problems) or "every span, event and link is where it should be"))
    return bool(problems)


def write_models(repository: Path) -> None:
    """The demo's encoder and language model, and the models of this folder."""
    demo = repository.parent / "demo"
    write_demo(demo, report=lambda line: None)
    for name in ("minilm", "tiny_llm"):
        shutil.copytree(demo / name, repository / name)
    shutil.copytree(HERE / "models", repository, dirs_exist_ok=True)


def clients(served: Server, traces: Jaeger, folder: Path) -> Iterator[tuple[str, list[str]]]:
    """The clients, and the commands that run them; each prints its trace id."""
    python = [sys.executable, str(HERE / "python_client.py")]
    yield "Python", [*python, served.grpc, traces.traces]
    yield "curl", [str(HERE / "curl_client.sh"), served.http]
    if shutil.which("go"):
        built = str(build_go(folder))
        yield "Go", [built, served.grpc, urlsplit(traces.traces).netloc]
    else:
        print("Go: left out, since it is not installed")


def build_go(folder: Path) -> Path:
    """Generate the stub and build the client in Go."""
    go, protos = HERE / "go", ROOT / "proto"
    (go / "inference").mkdir(exist_ok=True)
    names = "grpc_service.proto", "model_config.proto"
    mapped = ",".join(f"M{name}={_PACKAGE}" for name in names)
    plugins = "protoc-gen-go", "protoc-gen-go-grpc"
    paths = {
        name: subprocess.check_output(["go", "tool", "-n", name], cwd=go, text=True).strip()
        for name in plugins
    }
    uv = str(Path(sys.executable).with_name("uv"))
    protoc = [uv, "run", "--no-project", "--quiet", "--with", _PROTOC, "python", "-m"]
    protoc += ["grpc_tools.protoc", f"-I{protos}"]
    protoc += [f"--plugin={name}={path}" for name, path in paths.items()]
    for kind in ("go", "go-grpc"):
        protoc += [f"--{kind}_out=inference", f"--{kind}_opt=paths=source_relative,{mapped}"]
    subprocess.run([*protoc, *names], cwd=go, check=True)
    subprocess.run(["go", "build", "-p", "2", "-o", str(folder / "ask"), "."], cwd=go, check=True)
    return folder / "ask"


def ask_together(served: Server, url: str) -> list[str]:
    """Ask several questions at once, so that the encoder batches them; what is wrong with links.

    A batch is a span of a trace of its own, to which the computation of each request links.
    """
    command = [str(HERE / "curl_client.sh"), served.http]
    asking = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(_TOGETHER)
    ]
    trace_ids = [process.communicate()[0].strip() for process in asking]
    traces = [wait_for_trace(url, trace_id, set(PARENTS), 20) for trace_id in trace_ids]
    linked = [(span, link) for trace in traces for span in trace for link in span.links]
    for span, (trace_id, batch_id) in linked:
        batch = next(
            (b for b in wait_for_trace(url, trace_id, set(), 10) if b.id == batch_id), None
        )
        if batch is None or all(back != span.parent for _, back in batch.links):
            return [f"the batch of '{span.name}' has no link back"]
        print(f"\n{span.name} {span.id} is part of '{batch.name}' of {len(batch.links)} requests")
    return [] if linked else ["no question was part of a batch"]


def problems_of(spans: Sequence[Span]) -> list[str]:
    """What is wrong with a trace."""
    by_id = {span.id: span for span in spans}
    by_name = {span.name: span for span in spans}
    problems = [f"no span '{name}'" for name in PARENTS if name not in by_name]
    for name, parent in PARENTS.items():
        if name in by_name:
            above = by_id.get(by_name[name].parent)
            if above is None or above.name != parent:
                where = "nothing" if above is None else f"'{above.name}'"
                problems.append(f"'{name}' is below {where}, not '{parent}'")
    for name, events in EVENTS.items():
        have = {event for event, _ in by_name[name].events} if name in by_name else set()
        problems += [f"'{name}' has no event {event}" for event in sorted(events - have)]
    return problems


def show(client: str, trace_id: str, spans: Sequence[Span], problems: Sequence[str]) -> None:
    """Print the trace as a tree."""
    print(f"\n{client}: trace {trace_id}, {len(spans)} spans")
    begin = min((span.begin for span in spans), default=0)
    for depth, span in as_rows(spans):
        print(
            f"  {(span.begin - begin) / 1000:8.2f} ms {'  ' * depth}{span.name}"
            f" ({span.duration / 1000:.2f} ms, {span.service})"
        )
    for problem in problems:
        print(f"  WRONG: {problem}")


if __name__ == "__main__":
    sys.exit(main())
