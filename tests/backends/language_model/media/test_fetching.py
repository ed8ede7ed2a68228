"""Fetching of media, from servers that behave in every way."""

from __future__ import annotations

import asyncio
import base64
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from harness.http_threads import Quiet, answering
from penstock.backend import InvalidRequestError, ModelConfig
from penstock.core.config import Parameter
from penstock_backends.language_model import (
    MediaLimits,
    decode_base64,
    fetch_media,
    fetch_media_here,
    limit_fetches,
    media_limits,
)
from penstock_backends.language_model.media.fetching import MOST_OF_A_REQUEST

LOCAL = MediaLimits(frozenset({"127.0.0.1"}), size=1000, seconds=10)


class Pages(Quiet, BaseHTTPRequestHandler):
    """Pages by path; one that never ends waits for `over`."""

    over = threading.Event()
    asked = threading.Event()
    waiting = threading.Semaphore(0)

    def do_GET(self) -> None:
        if self.path.startswith("/endless"):
            self._begin(200)
            self._drip(0.0 if self.path == "/endless/flood" else 0.01)
        elif self.path == "/silent":
            self.asked.set()
            self.rfile.read(1)  # until the client leaves
            self.over.set()
        elif self.path == "/head":
            self.wfile.write(b"HTTP/1.1 200 OK\r\n")
            self._drip(0.01)
        elif self.path == "/wait":
            self.waiting.release()
            self.over.wait()
            self._begin(200)
            self.wfile.write(b"x")
        elif self.path.startswith("/to/"):
            self._begin(302, Location=self.path.removeprefix("/to/"))
        elif self.path == "/missing":
            self._begin(404)
        else:
            self._begin(200)
            self.wfile.write(b"x" * int(self.path[1:]))

    def _drip(self, pause: float) -> None:
        while not self.over.is_set():
            try:
                self.wfile.write(b"x")
            except OSError:
                self.over.set()
            self.over.wait(pause)

    def _begin(self, status: int, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()


@pytest.fixture
def server() -> Iterator[str]:
    Pages.over.clear()
    Pages.asked.clear()
    with answering(ThreadingHTTPServer(("127.0.0.1", 0), Pages)) as address:
        yield f"http://{address}"
        Pages.over.set()


async def refused(url: str, limits: MediaLimits = LOCAL) -> str:
    with pytest.raises(InvalidRequestError) as error:
        await fetch_media(url, "image_url", limits)
    return error.value.message


async def in_a_thread(url: str, name: str, limits: MediaLimits) -> bytes:
    return await asyncio.to_thread(fetch_media_here, url, name, limits)


@pytest.mark.contract("SEC-14")
@pytest.mark.parametrize(
    ("url", "content"),
    [
        (f"data:image/png;base64,{base64.b64encode(b'abc').decode()}", b"abc"),
        ("data:,a%20b", b"a b"),
        ("DATA:text/plain,x", b"x"),
    ],
)
async def test_a_data_url_holds_its_content(url: str, content: bytes) -> None:
    assert await fetch_media(url, "image_url", LOCAL) == content


@pytest.mark.contract("SEC-14")
@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("data:image/png;base64,?", "is not Base64"),
        ("data:abc", "without a comma"),
        (f"data:,{'x' * 1001}", "larger than 1000 bytes"),
        (f"data:;base64,{'A' * 4000}", "larger than 1000 bytes"),
        ("file:///etc/passwd", "must hold http:, https: or data: URLs"),
        ("/etc/passwd", "must hold http:, https: or data: URLs"),
        ("ftp://example.com/a", "must hold http:, https: or data: URLs"),
        ("http://", "must hold http:, https: or data: URLs"),
        ("http://127.0.0.1:port/", "is not a URL"),
        ("http://127.0.0.1/a\r\nHost: b", "must be encoded"),
        ("http://127.0.0.1/a b", "must be encoded"),
    ],
)
async def test_other_urls_are_refused(url: str, reason: str) -> None:
    assert reason in await refused(url)


@pytest.mark.parametrize("size", [0, 1, 3 << 16, (3 << 16) + 1, (3 << 18) - 2])
def test_base64_of_any_length_is_decoded(size: int) -> None:
    content = bytes(range(256)) * (size // 256) + bytes(size % 256)
    limits = MediaLimits()
    assert decode_base64(base64.b64encode(content), "image", limits) == content
    assert decode_base64(base64.b64encode(content).decode(), "image", limits) == content


@pytest.mark.parametrize("place", [(1 << 18) - 1, 1 << 18, (3 << 18) - 1])
async def test_padding_is_at_the_end_of_base64_only(place: int) -> None:
    text = "A" * place + "=" + "A" * ((4 << 18) - place - 1)
    assert "is not Base64" in await refused(f"data:;base64,{text}", MediaLimits())


async def test_the_event_loop_has_its_turns_while_a_large_data_url_is_decoded() -> None:
    url = f"data:;base64,{'A' * (16 << 20)}"
    fetching = asyncio.ensure_future(fetch_media(url, "image_url", MediaLimits()))
    turns = 0
    while not fetching.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 20
    assert await fetching == bytes(12 << 20)


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "localhost", "[::1]", "10.1.2.3", "192.168.0.1", "169.254.169.254"),
        *("0.0.0.0", "[::ffff:127.0.0.1]", "2130706433", "224.0.0.1"),
        *("[64:ff9b::10.1.2.3]", "[2002:a01:203::1]", "[::10.1.2.3]"),
    ],
)
async def test_addresses_that_are_not_public_are_refused(host: str) -> None:
    text = await refused(f"http://{host}/", MediaLimits())
    assert "which has no public address" in text
    assert "penstock.allowed_media_hosts" in text


@pytest.mark.contract("SEC-14")
async def test_an_allowed_host_is_asked(server: str) -> None:
    assert await fetch_media(f"{server}/1000", "image_url", LOCAL) == b"x" * 1000


async def test_only_some_hosts_may_be_asked(server: str) -> None:
    limits = MediaLimits(LOCAL.allowed_hosts, only_hosts=frozenset({"a.example"}))
    text = await refused(f"{server}/1000", limits)
    assert text == "input 'image_url' has the host '127.0.0.1', which the model does not name"
    limits = MediaLimits(LOCAL.allowed_hosts, only_hosts=frozenset({"127.0.0.1"}))
    assert await fetch_media(f"{server}/5", "image_url", limits) == b"x" * 5


async def test_a_thread_of_the_callers_may_fetch(server: str) -> None:
    for url in (f"{server}/3", "data:,xxx"):
        assert await asyncio.to_thread(fetch_media_here, url, "image_url", LOCAL) == b"xxx"


@pytest.mark.parametrize(
    "url",
    [
        "http://example.invalid\\@127.0.0.1:{port}/7",
        "http://example.invalid\\\\@127.0.0.1:{port}/7",
        "http://example.invalid@127.0.0.1:{port}/7",
        "http://example.invalid:80@127.0.0.1:{port}/7",
        "http://127.0.0.1:{port}\\@example.invalid/7",
        "http://example.invalid#@127.0.0.1:{port}/7",
        "http://example.invalid?@127.0.0.1:{port}/7",
        "http:\\\\127.0.0.1:{port}/7",
    ],
)
async def test_no_url_hides_its_host(
    server: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of hosts that parsers disagree on, none is asked but the one that is allowed."""
    asked: list[str] = []
    monkeypatch.setattr(Pages, "do_GET", lambda page: asked.append(page.path))
    limits = MediaLimits(frozenset({"example.invalid"}), size=1000, seconds=5)
    await refused(url.format(port=server.rpartition(":")[2]), limits)
    assert asked == []


async def test_redirections_are_followed(server: str) -> None:
    assert await fetch_media(f"{server}/to//to//7", "image_url", LOCAL) == b"x" * 7


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/missing", "is answered with status 404"),
        ("/1001", "is larger than 1000 bytes"),
        ("/endless/flood", "is larger than 1000 bytes"),
        ("/to//to//to//to//7", "is redirected too often"),
        ("/to/http://10.0.0.1/", "which has no public address"),
        ("/to/file:///etc/passwd", "must hold http:, https: or data: URLs"),
    ],
)
async def test_what_a_server_answers_is_bounded(server: str, path: str, reason: str) -> None:
    assert reason in await refused(server + path)


async def test_a_server_that_says_nothing_is_left(server: str) -> None:
    limits = MediaLimits(LOCAL.allowed_hosts, seconds=0.2)
    assert "takes longer than 0.2 s" in await refused(f"{server}/silent", limits)
    assert await asyncio.to_thread(Pages.over.wait, 20)


async def test_a_page_that_never_ends_is_left(server: str) -> None:
    limits = MediaLimits(LOCAL.allowed_hosts, seconds=0.2)
    assert "takes longer than 0.2 s" in await refused(f"{server}/endless", limits)
    assert await asyncio.to_thread(Pages.over.wait, 20)


async def test_cancelling_ends_the_connection(server: str) -> None:
    fetching = asyncio.create_task(fetch_media(f"{server}/silent", "image_url", LOCAL))
    assert await asyncio.to_thread(Pages.asked.wait, 10)
    fetching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetching
    assert await asyncio.to_thread(Pages.over.wait, 20)


async def test_a_port_that_nobody_listens_on_is_named(server: str) -> None:
    assert "cannot be fetched" in await refused("http://127.0.0.1:1/")


def test_a_model_allows_hosts_by_a_parameter() -> None:
    parameters = {"penstock.allowed_media_hosts": Parameter("a.example, B.example,")}
    config = ModelConfig("m", parameters=parameters)
    limits = media_limits(config, {})
    assert limits.allowed_hosts == limits.only_hosts == {"a.example", "b.example"}
    assert limits.by_url
    limits = media_limits(config, {"allow-media-urls": "true"})
    assert limits.allowed_hosts == {"a.example", "b.example"}
    assert limits.only_hosts == frozenset()


@pytest.mark.contract("SEC-14")
@pytest.mark.parametrize(
    ("parameters", "settings"),
    [
        ({}, {}),
        ({}, {"allow-media-urls": "false"}),
        (
            {"penstock.allowed_media_hosts": Parameter("127.0.0.1")},
            {"allow-media-urls": "false"},
        ),
    ],
)
async def test_nothing_is_fetched_unless_somebody_asks_for_it(
    server: str, parameters: dict[str, Parameter], settings: dict[str, str]
) -> None:
    limits = media_limits(ModelConfig("m", parameters=parameters), settings)
    assert "--allow-media-urls=true allows it" in await refused(f"{server}/5", limits)
    with pytest.raises(InvalidRequestError, match="this server fetches nothing"):
        fetch_media_here(f"{server}/5", "image_url", limits)
    assert await fetch_media("data:,x", "image_url", limits) == b"x"


async def test_an_unknown_host_is_told_as_one_inside_is() -> None:
    texts = [
        (await refused(f"http://{host}/", MediaLimits())).replace(host, "HOST")
        for host in ("localhost", "nowhere.invalid", "a..b")
    ]
    assert len(set(texts)) == 1


async def test_a_head_that_never_ends_is_left(server: str) -> None:
    limits = MediaLimits(LOCAL.allowed_hosts, seconds=0.2)
    for fetch in (fetch_media, in_a_thread):
        with pytest.raises(InvalidRequestError, match=r"takes longer than 0\.2 s"):
            await fetch(f"{server}/head", "image_url", limits)
        assert await asyncio.to_thread(Pages.over.wait, 20)
        Pages.over.clear()


async def test_a_request_fetches_a_few_at_once(server: str) -> None:
    Pages.waiting = threading.Semaphore(0)
    limit_fetches()
    fetching = [
        asyncio.create_task(fetch_media(f"{server}/wait", "image_url", LOCAL)) for _ in range(9)
    ]
    for _ in range(MOST_OF_A_REQUEST):
        assert await asyncio.to_thread(Pages.waiting.acquire, timeout=20)
    assert not Pages.waiting.acquire(blocking=False)
    Pages.over.set()
    assert await asyncio.gather(*fetching) == [b"x"] * 9
