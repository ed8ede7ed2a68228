"""A policy file that changes while the server runs."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread

import pytest

from access.issuer import Issuer, with_tokens
from access.policies import ALICE, BOB, POLICY, bearer, hashed, replaced
from fakes import turns
from harness.http_threads import Quiet, answering
from penstock.access.key_set import fetch
from penstock.access.watch import PolicyWatch
from penstock.core.errors import ConfigError, InferenceError
from penstock.settings import Feature

ISSUED = Issuer()
KEY = "a-new-key"
CHANGED = POLICY.replace("[callers.bob]\nkeys = [", f"[callers.bob]\nkeys = {hashed(KEY)[:-1]}, ")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "policy.toml"
    path.write_text(POLICY)
    return path


class KeyServer:
    """Answers every request with the same; with status 0 by what is no HTTP."""

    answer, status, asked = b"", 200, 0
    let_go: Event | None = None

    def __init__(self) -> None:
        outer, self.came = self, Event()

        class Handler(Quiet, BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked += 1
                if outer.let_go is not None:
                    outer.came.set()
                    outer.let_go.wait()
                if outer.status == 0:
                    self.wfile.write(b"what?\r\n\r\n")
                    return
                self.send_response(outer.status)
                self.send_header("location", "/other")
                self.end_headers()
                with suppress(OSError):  # whoever has enough leaves
                    self.wfile.write(outer.answer)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}/keys"


@pytest.fixture
def keys() -> Iterator[KeyServer]:
    served = KeyServer()
    with answering(served.server):
        yield served


def caller(watch: PolicyWatch, key: str) -> str:
    try:
        return watch.gate.permit(bearer(key), Feature.HEALTH).caller
    except InferenceError:
        return "nobody"


async def test_a_changed_file_is_in_force(file: Path) -> None:
    watch = PolicyWatch(file)
    before = caller(watch, KEY)
    replaced(file, CHANGED)
    await watch.look()
    assert (before, caller(watch, KEY), watch.gate.reload_failures) == ("", "bob", 0)


async def test_a_link_to_another_file_is_a_change(tmp_path: Path) -> None:
    """As Kubernetes does it: a link to a folder is replaced, and the file's own stays."""
    for name, text in (("old", POLICY), ("new", CHANGED)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "policy.toml").write_text(text)
        os.utime(tmp_path / name / "policy.toml", (1, 1))
    (tmp_path / "data").symlink_to("old")
    (tmp_path / "policy.toml").symlink_to("data/policy.toml")
    watch = PolicyWatch(tmp_path / "policy.toml")
    (tmp_path / "next").symlink_to("new")
    os.replace(tmp_path / "next", tmp_path / "data")
    await watch.look()
    assert caller(watch, KEY) == "bob"


def rewrite(file: Path, text: str) -> None:
    """Write a file in its place, and have it the time that it had."""
    before = file.stat()
    file.write_text(text)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    while file.stat().st_ctime_ns == before.st_ctime_ns:  # the clock of files ticks slowly
        file.chmod(0o600)


async def test_a_change_that_keeps_size_and_time_is_one(file: Path) -> None:
    """So is one of rights: a file that could not be read may be read now."""
    watch = PolicyWatch(file)
    rewrite(file, POLICY.replace(hashed(BOB), hashed(KEY)))
    await watch.look()
    assert (caller(watch, KEY), caller(watch, BOB)) == ("bob", "")


@pytest.mark.parametrize("text", ["", "rules = [", CHANGED.replace('"*"', '"everything"'), None])
async def test_a_wrong_file_leaves_the_old_one_in_force(
    file: Path, text: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    watch = PolicyWatch(file)
    replaced(file, text)
    for _ in range(3):
        await watch.look()
    assert caller(watch, ALICE) == "alice"
    assert watch.gate.reload_failures == 1
    (line,) = caplog.messages
    assert line.endswith("the policy before it stays in force")


@pytest.mark.parametrize("which", ["policy.toml", "keys.json"])
async def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(file: Path, which: str) -> None:
    """Nobody writes to it: the watch would look at no further file."""
    keys = file.with_name("keys.json")
    keys.write_bytes(ISSUED.key_set())
    replaced(file, with_tokens(str(keys)))
    watch, pipe = PolicyWatch(file), file.with_name("pipe")
    kept = (file.parent / which).read_text()
    os.mkfifo(pipe)
    os.replace(pipe, file.parent / which)
    await watch.look()
    failed = watch.gate.reload_failures
    replaced(keys if which == keys.name else file, kept)
    replaced(file, with_tokens(str(keys), CHANGED))
    await watch.look()
    assert (failed, watch.gate.reload_failures, caller(watch, KEY)) == (1, 1, "bob")


async def test_a_file_that_is_right_again_is_in_force(file: Path) -> None:
    watch = PolicyWatch(file)
    replaced(file, "")
    await watch.look()
    replaced(file, CHANGED)
    await watch.look()
    assert caller(watch, KEY) == "bob"


async def test_a_changed_file_of_keys_is_in_use(tmp_path: Path) -> None:
    first, second = Issuer(), Issuer()
    keys, file = tmp_path / "keys.json", tmp_path / "policy.toml"
    keys.write_bytes(first.key_set())
    file.write_text(with_tokens(str(keys)))
    watch = PolicyWatch(file)
    old, new = first.token(), second.token()
    assert (caller(watch, old), caller(watch, new)) == ("alice", "")
    replaced(keys, second.key_set().decode())
    await watch.look()
    assert (caller(watch, old), caller(watch, new)) == ("", "alice")
    replaced(keys, "{}")
    await watch.look()
    assert (caller(watch, new), watch.gate.reload_failures) == ("alice", 1)


def test_keys_that_are_not_there_are_an_error_at_the_start(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(with_tokens(str(tmp_path / "none.json")))
    with pytest.raises(ConfigError, match=r"cannot read the key set '.*none\.json'"):
        PolicyWatch(file)


async def test_keys_are_fetched_and_the_last_good_ones_are_kept(
    file: Path, keys: KeyServer, caplog: pytest.LogCaptureFixture
) -> None:
    keys.answer = ISSUED.key_set()
    replaced(file, with_tokens(keys.address))
    watch, token = PolicyWatch(file), ISSUED.token()
    assert caller(watch, token) == ""
    await watch.renew_keys()
    assert caller(watch, token) == "alice"
    keys.answer = b"{}"
    for text in (with_tokens(keys.address, more="retry_secs = 1"), with_tokens(keys.address)):
        replaced(file, text)
        await watch.look()
        await watch.renew_keys()
        await watch.renew_keys()
    assert caller(watch, token) == "alice"
    assert (keys.asked, watch.gate.reload_failures) == (3, 2)
    assert "the keys before them stay in use" in caplog.text


async def test_what_could_not_be_fetched_is_tried_again_sooner(
    file: Path, keys: KeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After `retry_secs`; what was fetched holds for `refresh_secs`."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    replaced(file, with_tokens(keys.address))
    watch, asked = PolicyWatch(file), []
    for keys.answer in (b"{}", ISSUED.key_set(), b"{}"):
        await watch.renew_keys()
        asked.append(keys.asked)
        now[0] += 10
    assert asked == [1, 2, 2]


async def test_an_unknown_key_is_fetched_once_in_an_interval(file: Path, keys: KeyServer) -> None:
    keys.answer = ISSUED.key_set()
    replaced(file, with_tokens(keys.address))
    watch, stranger = PolicyWatch(file), Issuer()
    stranger.keys["new"] = stranger.keys["ec"]
    for _ in range(3):
        await watch.renew_keys()
        assert caller(watch, stranger.token("new")) == ""
    assert keys.asked == 1


@pytest.mark.parametrize("status", [302, 404, 500, 0])
async def test_an_answer_that_is_none_is_an_error(keys: KeyServer, status: int) -> None:
    keys.answer, keys.status = ISSUED.key_set(), status
    with pytest.raises(ConfigError, match="cannot fetch 'http://127"):
        await fetch(keys.address)


async def test_an_endless_answer_is_an_error(keys: KeyServer) -> None:
    keys.answer = b" " * ((8 << 20) + 1)
    with pytest.raises(ConfigError, match="larger than 8388608 bytes"):
        await fetch(keys.address)


def test_a_wrong_file_at_the_start_is_an_error(file: Path) -> None:
    file.write_text("")
    with pytest.raises(ConfigError):
        PolicyWatch(file)


async def test_keys_of_this_machine_are_not_asked_of_a_proxy(
    keys: KeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By `http:` whoever is on the way to the proxy could put in keys of its own."""
    keys.answer = ISSUED.key_set()
    for name in ("http_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://proxy.invalid:3128")
    monkeypatch.delenv("no_proxy", raising=False)
    assert "ec" in await fetch(keys.address)


@contextmanager
def endless(beginning: bytes, rest: bytes) -> Iterator[tuple[str, Event, Event]]:
    """The address of a server whose answer has no end; and whether who asks came, and left."""
    came, left = Event(), Event()

    def answer() -> None:
        with server.accept()[0] as connection, suppress(OSError):
            connection.recv(4096)
            connection.sendall(beginning)
            came.set()
            while not left.wait(0.01) if rest else connection.recv(4096):
                connection.sendall(rest)  # a pause between them, else who asks has a queue to read
        left.set()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = Thread(target=answer, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/keys", came, left


ENDLESS = {
    "interim answers": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "size of a part": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b""),
}


@pytest.mark.parametrize(("beginning", "rest"), ENDLESS.values(), ids=ENDLESS)
async def test_an_answer_that_comes_too_slowly_is_an_error(beginning: bytes, rest: bytes) -> None:
    with endless(beginning, rest) as (address, _, left):
        with pytest.raises(ConfigError) as refused:
            await fetch(address, seconds=0.3)
        assert str(refused.value) == f"'{address}': it has not come within 0.3 s"
        assert await asyncio.to_thread(left.wait, 20)


async def test_a_fetch_that_is_given_up_leaves_no_thread_behind() -> None:
    """Else a server whose keys do not come would not end."""
    with endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n") as (address, came, left):
        fetching = asyncio.ensure_future(fetch(address))
        await asyncio.to_thread(came.wait)
        fetching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fetching
        assert await asyncio.to_thread(left.wait, 20)


async def test_keys_that_come_for_an_older_policy_are_not_used(file: Path, keys: KeyServer) -> None:
    keys.answer, keys.let_go = ISSUED.key_set(), Event()
    replaced(file, with_tokens(keys.address))
    watch, token = PolicyWatch(file), ISSUED.token()
    fetching = asyncio.ensure_future(watch.renew_keys())
    await asyncio.to_thread(keys.came.wait)
    replaced(file, with_tokens("https://other.example/keys"))
    await watch.look()
    keys.let_go.set()
    await fetching
    assert caller(watch, token) == ""


async def test_keys_of_the_same_address_outlive_a_change_and_others_do_not(
    file: Path, keys: KeyServer
) -> None:
    keys.answer = ISSUED.key_set()
    replaced(file, with_tokens(keys.address))
    watch, token = PolicyWatch(file), ISSUED.token()
    await watch.renew_keys()
    replaced(file, with_tokens(keys.address, more="leeway_secs = 1"))
    await watch.look()
    told = [caller(watch, token)]
    replaced(file, with_tokens(f"{keys.address}/other"))
    await watch.look()
    assert [*told, caller(watch, token)] == ["alice", ""]


async def test_a_watch_looks_again_after_a_bug_and_ends_with_its_context(
    file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    watch, seen, enough = PolicyWatch(file), list[str](), asyncio.Event()

    def note(what: str) -> None:
        seen.append(what)
        if min(seen.count("look"), seen.count("renew")) > 2:
            enough.set()

    async def look() -> None:
        note("look")
        raise ValueError("a bug")

    async def renew() -> None:
        note("renew")

    monkeypatch.setattr(watch, "look", look)
    monkeypatch.setattr(watch, "renew_keys", renew)
    async with watch.running(0.0):
        await enough.wait()
    counted = len(seen)
    await turns()
    assert len(seen) == counted
    assert "looking at the access policy failed" in caplog.text
