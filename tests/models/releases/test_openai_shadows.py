"""Shadows of an alias in OpenAI's API, as its stock client calls it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from harness.serving import serving, wait_until
from models.releases.calls import Releases

pytestmark = pytest.mark.slow

TALKS = """
from penstock.model import Model, Request, Response


class Talks(Model):
    async def infer(self, request: Request):
        for word in PARTS:
            yield Response({"text_output": [word]})
"""
LENGTHS = """
import numpy as np

from penstock.model import Model, Request, Response


class Lengths(Model):
    async def infer(self, request: Request) -> Response:
        texts = [text.decode() for text in request["TEXT"].ravel()]
        return Response({"EMBEDDING": np.array([[len(t), NUMBER] for t in texts], "f4")})
"""
TALKING = """
backend: "python"
model_transaction_policy { decoupled: true }
input { name: "text_input" data_type: TYPE_STRING dims: 1 }
output { name: "text_output" data_type: TYPE_STRING dims: -1 }
"""
EMBEDDING = """
backend: "python"
max_batch_size: 4
input { name: "TEXT" data_type: TYPE_STRING dims: 1 }
output { name: "EMBEDDING" data_type: TYPE_FP32 dims: 2 }
"""


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Releases]:
    folder = tmp_path_factory.mktemp("openai-shadows")
    for name, config, code in (
        ("talks", TALKING, f"PARTS = ['Once ', 'upon ', 'a time']{TALKS}"),
        ("cuts", TALKING, f"PARTS = ['On', 'ce upon a', ' time']{TALKS}"),
        ("errs", TALKING, f"PARTS = ['Once ', 'again']{TALKS}"),
        ("lengths", EMBEDDING, f"NUMBER = 1.0{LENGTHS}"),
        ("nearly", EMBEDDING, f"NUMBER = 1.0001{LENGTHS}"),
    ):
        path = folder / "models" / name / "1"
        path.mkdir(parents=True)
        (path / "model.py").write_text(code)
        (path.parent / "config.pbtxt").write_text(config)
    flags = ("--model-control-mode=explicit", "--load-model=*")
    with serving(folder / "models", folder / "log", *flags) as served:
        yield Releases(served, folder / "models")


@pytest.fixture
def client(releases: Releases) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"http://{releases.served.http}/v1", api_key="-") as made:
        yield made


def _shadow(releases: Releases, first: str, second: str, **compare: Any) -> None:
    releases.ask("/alias", method="DELETE")  # the same shadow would go on with its counts
    shadow = {"model": second, "compare": compare}
    releases.ask("/alias", {"targets": [{"model": first}], "shadow": shadow}, "POST")


def _outcome(releases: Releases) -> Any:
    """What came of the only copy."""
    shown: dict[str, Any] = {}

    def outcomes() -> list[str]:
        shown.update(releases.ask("/alias")["shadowed"])
        return [one for one in ("equal", "different", "failed", "dropped") if shown[one]]

    wait_until(lambda: bool(outcomes()))
    return outcomes()[0], shown


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("second", "outcome"), [("cuts", "equal"), ("errs", "different"), ("lengths", "failed")]
)
def test_chats_are_compared(
    releases: Releases, client: openai.OpenAI, stream: bool, second: str, outcome: str
) -> None:
    _shadow(releases, "talks", second)
    asked: Any = {"model": "alias", "messages": [{"role": "user", "content": "A story"}]}
    if stream:
        events = [*client.chat.completions.create(stream=True, **asked)]
        text = "".join(one.choices[0].delta.content or "" for one in events if one.choices)
    else:
        text = client.chat.completions.create(**asked).choices[0].message.content or ""
    assert text == "Once upon a time"
    found, shown = _outcome(releases)
    assert found == outcome
    if outcome == "different":
        place = "choices[0].delta.content" if stream else "choices[0].message.content"
        told = shown["differing"][0]["difference"]
        assert told == f"output '{place}': the text is equal for the first 5 bytes of 16 and 10"


@pytest.mark.parametrize(("compare", "outcome"), [({"rtol": 1e-3}, "equal"), ({}, "different")])
def test_embeddings_are_compared_by_tolerance(
    releases: Releases, client: openai.OpenAI, compare: dict[str, float], outcome: str
) -> None:
    _shadow(releases, "lengths", "nearly", **compare)
    answer = client.embeddings.create(model="alias", input=["a", "four"])
    assert [one.embedding for one in answer.data] == [[1, 1], [4, 1]]
    assert _outcome(releases)[0] == outcome


def test_an_answer_tells_its_target_and_not_the_shadow(
    releases: Releases, client: openai.OpenAI
) -> None:
    _shadow(releases, "talks", "errs")
    raw = client.completions.with_raw_response.create(model="alias", prompt="A story")
    assert raw.headers["penstock-target"] == "talks"
    assert raw.parse().choices[0].text == "Once upon a time"
    assert _outcome(releases)[0] == "different"
