"""The pipeline of examples/rag: pictures and texts in, passages, their order, a streamed answer."""

from __future__ import annotations

import base64
import io
import json
import random
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import openai
import pytest
from examples.rag.build import write_repository
from examples.rag.drawings import THINGS, drawn
from examples.rag.walk import PARENTS

from harness.serving import Served, serving, wait_until
from penstock.demo.sentence_encoder import INSTALL, weights_installed
from programs.places import find
from tracing.export.collector import HttpCollector

pytestmark = [
    pytest.mark.slow,
    pytest.mark.engine,
    pytest.mark.needs("MiniLM", "" if weights_installed() else f"no weights: {INSTALL}"),
]

_ROOT = Path(__file__).parents[2]
_CLIENT = _ROOT / "examples" / "rag" / "client.py"


class Pipeline(NamedTuple):
    server: Served
    spans: HttpCollector

    def ask(self, question: str, *options: str) -> dict[str, Any]:
        """What a stock client, in a process of its own, prints at its end, with all its text."""
        command = [sys.executable, str(_CLIENT), self.server.grpc, question, *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        text, _, last = done.stdout.rstrip().rpartition("\n")
        found: dict[str, Any] = json.loads(last)
        return found | {"text": text}

    def statistics(self, model: str) -> dict[str, Any]:
        url = f"http://{self.server.http}/v2/models/{model}/stats"
        with urllib.request.urlopen(url, timeout=60) as reply:
            found: dict[str, Any] = json.load(reply)["model_stats"][0]
        return found


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    folder = tmp_path_factory.mktemp("rag")
    write_repository(folder / "models")
    with HttpCollector() as collector:
        options = (
            "mode=opentelemetry",
            "level=TIMESTAMPS",
            "rate=1",
            f"opentelemetry,url={collector.url}",
        )
        flags = [f"--trace-config={option}" for option in options]
        flags.append("--trace-config=opentelemetry,bsp_schedule_delay=50")
        with serving(folder / "models", folder / "log", *flags) as server:
            yield Pipeline(server, collector)


@pytest.fixture
def clock(tmp_path: Path) -> Path:
    """A picture that was not drawn while the tower was trained."""
    drawn("clock", random.Random("clock")).save(tmp_path / "clock.png")
    return tmp_path / "clock.png"


@pytest.mark.contract("E-22")
def test_a_question_finds_its_passage(pipeline: Pipeline) -> None:
    """And has an answer, however short."""
    answer = pipeline.ask("Who waits for a lock?")
    assert "A lock is held by one thread" in answer["passage"]
    assert answer["pieces"] >= 1


@pytest.mark.contract("E-22")
def test_a_picture_says_what_the_question_is_about(pipeline: Pipeline, clock: Path) -> None:
    answer = pipeline.ask("What is this about?", f"--image={clock}")
    assert any(word in answer["passage"] for word in ("time", "date"))


@pytest.mark.contract("SD-09")
def test_all_of_its_models_are_asked_at_once(pipeline: Pipeline, clock: Path) -> None:
    """A language model, a tower for pictures, a reranker and steps in Python, of one server."""
    asked = [("Who waits for a lock?",), ("What is this about?", f"--image={clock}")]
    alone = [pipeline.ask(*each)["passage"] for each in asked]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda each: pipeline.ask(*each), asked * 2))
    assert [each["passage"] for each in together] == alone * 2
    assert all(each["pieces"] >= 1 for each in together)


def test_pictures_and_words_for_them_have_near_vectors(pipeline: Pipeline) -> None:
    """By OpenAI's API of both encoders."""
    words = [words for _, words in THINGS.values()]
    right = 0
    with httpx.Client(base_url=f"http://{pipeline.server.http}", timeout=60) as client:
        made = client.post("/v1/embeddings", json={"model": "minilm", "input": words}).json()
        texts = [one["embedding"] for one in made["data"]]
        for place, thing in enumerate(THINGS):
            file = io.BytesIO()
            drawn(thing, random.Random(f"new {thing}")).save(file, "PNG")
            url = "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
            part = {"type": "image_url", "image_url": {"url": url}}
            body = {"model": "picture", "messages": [{"role": "user", "content": [part]}]}
            (one,) = client.post("/v1/embeddings", json=body).json()["data"]
            alike = [sum(a * b for a, b in zip(one["embedding"], t, strict=True)) for t in texts]
            right += alike.index(max(alike)) == place
    assert right >= 9


@pytest.mark.contract("T-16", "T-17")
def test_the_trace_has_a_span_of_each_step(pipeline: Pipeline, clock: Path) -> None:
    trace_id = random.getrandbits(128)
    parent = f"00-{trace_id:032x}-{1:016x}-01"
    pipeline.ask("What is this?", f"--image={clock}", f"--traceparent={parent}")
    wanted = {*PARENTS, "minilm", "picture"}
    pipeline.spans.wait_for(lambda: wanted <= {s.name for s in pipeline.spans.trace(trace_id)})
    spans = pipeline.spans.trace(trace_id)
    names = {span.span_id: span.name for span in spans}
    above = {span.name: names.get(span.parent_span_id, "") for span in spans}
    assert {name: above[name] for name in PARENTS} == PARENTS
    assert above["picture"] == "retrieve"
    assert all(span.end_time_unix_nano >= span.start_time_unix_nano > 0 for span in spans)


def test_events_over_http_have_the_same_text(pipeline: Pipeline) -> None:
    sampling = json.dumps({"max_tokens": 24, "temperature": 0})
    body = {"text_input": "What is a lock?", "stream": True, "exclude_input_in_output": True}
    url = f"http://{pipeline.server.http}/v2/models/rag/generate_stream"
    data = json.dumps({**body, "sampling_parameters": sampling}).encode()
    with urllib.request.urlopen(url, data=data, timeout=60) as reply:
        events = [json.loads(line[6:]) for line in reply.read().decode().split("\n\n") if line]
    text = "".join(event["text_output"] for event in events)
    assert len(events) > 1
    over_grpc = pipeline.ask("What is a lock?")
    assert over_grpc["pieces"] > 1
    assert text.strip() == over_grpc["text"].strip()


@pytest.mark.contract("OA-01")
def test_openais_client_chats_with_it(pipeline: Pipeline) -> None:
    base = f"http://{pipeline.server.http}/v1"
    with openai.OpenAI(base_url=base, api_key="none", max_retries=0, timeout=60) as client:
        chunks = client.chat.completions.create(
            model="rag",
            messages=[{"role": "user", "content": "What is a lock?"}],
            max_tokens=24,
            temperature=0,
            stream=True,
        )
        with closing(chunks):
            texts = [c.choices[0].delta.content or "" for c in chunks if c.choices]
    assert "".join(texts).strip() == pipeline.ask("What is a lock?")["text"].strip()


@pytest.mark.contract("G-31")
def test_a_client_that_cancels_stops_the_language_model(pipeline: Pipeline) -> None:
    pipeline.ask("What is a lock?", "--max-tokens=900", "--cancel-after=2")

    def stopped() -> bool:
        with urllib.request.urlopen(pipeline.server.metrics, timeout=30) as page:
            lines = page.read().decode().splitlines()
        wanted = 'nv_inference_request_failure{model="tiny_llm"', 'reason="CANCELED"'
        return any(line.endswith(" 1") for line in lines if all(part in line for part in wanted))

    wait_until(stopped)


def test_each_step_has_its_times(pipeline: Pipeline) -> None:
    """Those of the requests before, by the statistics of the models."""
    pipeline.ask("What is a lock?")
    for model in ("minilm", "retrieve", "reranker", "compose", "find", "tiny_llm", "rag"):
        assert pipeline.statistics(model)["inference_stats"]["success"]["ns"] > 0, model


@pytest.mark.contract("T-16", "T-17")
@pytest.mark.needs(
    "jaeger", "" if find("jaeger") else "no Jaeger: python tests/programs/install.py jaeger"
)
def test_jaeger_shows_every_step(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "examples.rag.walk", f"--picture={tmp_path / 'trace.svg'}"]
    walked = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    assert walked.returncode == 0, walked.stdout + walked.stderr
    assert "every step is where it should be" in walked.stdout
    assert "picture" in (tmp_path / "trace.svg").read_text()
