"""Endpoints are read within bounds, and whatever they answer is understood or told."""

from __future__ import annotations

from io import BufferedIOBase

import pytest

from penstock_client.reading import fetch as fetching
from penstock_client.reading.address import Address
from penstock_client.reading.counters import ModelKey
from penstock_client.reading.fetch import (
    INDEX_SECONDS,
    AnswersFetcher,
    FetchError,
    fetch,
    fetch_page,
)
from penstock_client.reading.views import ModelEntry
from top.stub_server import StubServer, stub_server

KEY = ModelKey("bert", "1")


def test_the_page_is_read(server: StubServer) -> None:
    assert fetch_page(server.address).models[KEY].success == 5


def test_a_page_may_have_another_path(server: StubServer) -> None:
    server.answers["/proxy/metrics"] = server.answers["/metrics"]
    address = Address("127.0.0.1", server.server_port, path="/proxy/metrics")
    assert KEY in fetch_page(address).models


def test_the_endpoint_is_asked(server: StubServer) -> None:
    answers = AnswersFetcher(server.address).fetch()
    assert (answers.ready, answers.server) == (True, "stub 1.2")
    assert answers.states == {KEY: ModelEntry("bert", "1", "READY")}


def test_a_server_that_is_not_ready_says_so(server: StubServer) -> None:
    del server.answers["/v2/health/ready"]
    assert not AnswersFetcher(server.address).fetch().ready


def test_what_a_server_does_not_tell_is_left_out(server: StubServer) -> None:
    server.answers = {"/v2/health/ready": b""}
    answers = AnswersFetcher(server.address).fetch()
    assert (answers.ready, answers.states, answers.counters) == (True, {}, {})


def test_the_index_is_read_now_and_then(server: StubServer) -> None:
    times = iter([0.0, 0.0, INDEX_SECONDS / 2, INDEX_SECONDS, INDEX_SECONDS])
    fetcher = AnswersFetcher(server.address, clock=lambda: next(times))
    for _ in range(3):
        assert fetcher.fetch().states
    assert server.asked.count("/v2/repository/index") == 2
    assert server.asked.count("/v2/models/stats") == 3


def test_a_port_without_a_server_is_told() -> None:
    with stub_server() as server:
        address = server.address
    with pytest.raises(FetchError, match=r"^connection refused$"):
        fetch_page(address)


def test_a_host_that_does_not_exist_is_told() -> None:
    with pytest.raises(FetchError, match=r"name|address|resolution|host"):
        fetch_page(Address("no-such-host.invalid", 8002))
    with pytest.raises(FetchError, match="not an answer of HTTP"):
        fetch_page(Address("x" * 300, 8002))


def test_another_status_is_told(server: StubServer) -> None:
    server.answers.clear()
    with pytest.raises(FetchError, match="HTTP status 404 instead of a metrics page"):
        fetch_page(server.address)


def _no_http(out: BufferedIOBase) -> None:
    out.write(b"SSH-2.0-server\r\n\r\n")


def _grpc(out: BufferedIOBase) -> None:
    out.write(b"\0\0\6\4\0\0\0\0\0\0\5\0\0@\0")


def _cut(out: BufferedIOBase) -> None:
    out.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab")


@pytest.mark.parametrize("answer", [_no_http, _grpc, _cut])
def test_an_answer_that_is_not_http_is_told(server: StubServer, answer: object) -> None:
    server.answers["/metrics"] = answer  # type: ignore[assignment]
    with pytest.raises(FetchError, match="not an answer of HTTP") as told:
        fetch_page(server.address)
    assert "\\x" not in str(told.value)


def test_a_server_that_does_not_go_on_is_told(
    server: StubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "CONNECT_SECONDS", 0.2)
    server.answers["/metrics"] = server.hold
    with pytest.raises(FetchError, match=r"no answer within 0\.2 s"):
        fetch_page(server.address)


def test_an_endless_answer_is_left(server: StubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.answers["/metrics"] = b"x" * 100_000
    monkeypatch.setattr(fetching, "MOST_BYTES", 90_000)
    with pytest.raises(FetchError, match="the answer is larger than"):
        fetch(server.address, "/metrics")
    monkeypatch.setattr(fetching, "MOST_BYTES", 1 << 20)
    monkeypatch.setattr(fetching, "ANSWER_SECONDS", 0.0)
    with pytest.raises(FetchError, match="the answer took longer than 0 s"):
        fetch(server.address, "/metrics")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v2/models/stats", b"no json"),
        ("/v2/models/stats", b"[" * 100_000),
        ("/v2/models/stats", b"[1]"),
        ("/v2/models/stats", b'{"model_stats": [{"name": "m", "inference_count": "many"}]}'),
        (
            "/v2/models/stats",
            b'{"model_stats": [{"name": "m", "batch_stats": [{"batch_size": 1e999}]}]}',
        ),
        ("/v2/repository/index", b'[{"version": "1"}]'),
        ("/v2", b'"text"'),
    ],
)
def test_json_of_another_form_is_told(server: StubServer, path: str, body: bytes) -> None:
    server.answers[path] = body
    with pytest.raises(FetchError, match=r"is not JSON|is not of KServe's form"):
        AnswersFetcher(server.address).fetch()


def test_a_number_that_cannot_be_is_told(server: StubServer) -> None:
    server.answers["/metrics"] = b"penstock_model_process_pid NaN\n"
    with pytest.raises(FetchError, match="a number that cannot be"):
        fetch_page(server.address)
