"""Every HTTP answer that was recorded from a running Triton, compared with ours."""

from __future__ import annotations

import base64
import gzip
import zlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
import pytest_asyncio

from gateway.recorded_models import RecordedModels
from gateway.serving import connected, serving
from harness.recorded import answers, needs_answers, write_models
from penstock.models.loading import backends

_FILES = ("http_routes", "http_infer_ok", "http_infer_errors", "http_generate", "model_configs")

_ELSEWHERE = {
    "ready": "needs all models: asked of a whole server in tests/conformance",
    "index POST": "lists all models",
    "duplicate output": "is refused here: see the differences in tests/conformance",
    "sequence end": "is asked after its beginning in tests/conformance",
    "binary: bytes malformed": "is detected before the model runs, so the error is JSON",
    **dict.fromkeys(
        ("model ready", "query string"),
        "the body is JSON here: see the differences in tests/conformance",
    ),
    **dict.fromkeys(
        ("tokens 0 on generate", "dec_failer 0", "dec_failer 1", "dec_failer 6"),
        "the status here is 400: see the differences in tests/conformance",
    ),
    **dict.fromkeys(
        (
            "model response parameters",
            "failer mode 1",
            "failer mode 9",
            "failer mode 10",
            "failer 1",
            "failer 31 parameters",
            "dec_failer 5 stream",
            "dec_failer 6 stream",
            "dec_failer 7",
            "dec_failer 7 stream",
        ),
        "a text of the Python backend: asked of a whole server in tests/conformance",
    ),
}
"""Requests whose answers are not the gateway's to give, and whose they are."""

_UNPACK: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.decompress,
    "deflate": zlib.decompress,
}


def _cases() -> list[Any]:
    found = [
        pytest.param(case, id=f"{file}: {name}")
        for file in _FILES
        for name, case in answers(f"{file}.json").items()
        if "path" in case
    ]
    # Without the recorded answers one test is left, which says that they are missing.
    return found or [{}]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server with all of the models that it supports."""
    repository = write_models("good", tmp_path_factory.mktemp("models"))
    names = [folder.name for folder in repository.iterdir()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backends, "find_backend", lambda _: RecordedModels)
        async with (
            serving(repository, names, lenient=True) as server,
            connected(server) as client,
        ):
            yield client


@needs_answers
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("case", _cases())
async def test_answer_is_the_recorded_one(
    case: dict[str, Any], request: pytest.FixtureRequest, client: httpx.AsyncClient
) -> None:
    """Status, content type and text are as recorded; compressed bodies after decompression."""
    _skip_others(request.node.callspec.id)
    answer = await client.request(
        case["method"], case["path"], content=_body(case), headers=case["headers"]
    )
    headers = {name.lower(): value for name, value in case["reply_headers"]}
    replied = answer.status_code, answer.headers["content-type"], _content(answer, case)
    assert replied == (case["status"], headers["content-type"], _recorded(case, headers))


def _skip_others(test: str) -> None:
    reason = _ELSEWHERE.get(test.partition(": ")[2])
    if reason is not None:
        pytest.skip(reason)


def _body(case: dict[str, Any]) -> bytes | None:
    body = case.get("body")
    if isinstance(body, dict):
        return base64.b64decode(body["base64"])
    return None if body is None else body.encode()


def _content(answer: httpx.Response, case: dict[str, Any]) -> Any:
    """What was answered, as text where the text was recorded and else as JSON."""
    as_text = case.get("reply_text", "") is not None and not _has_map(case)
    return answer.content if as_text else answer.json()


def _has_map(case: dict[str, Any]) -> bool:
    """Whether the reply has a map of several entries, whose order means nothing."""
    return "warmup" in case["path"] and case["path"].endswith("/config")


def _recorded(case: dict[str, Any], headers: dict[str, str]) -> Any:
    reply = case["reply"]
    if isinstance(reply, dict) and set(reply) == {"base64"}:
        unpack = _UNPACK.get(headers.get("content-encoding", ""), bytes)
        return unpack(base64.b64decode(reply["base64"]))
    text = reply if _has_map(case) else case.get("reply_text") or reply
    return text.encode() if isinstance(text, str) else text
