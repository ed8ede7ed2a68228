"""Two servers behind each proxy: streams, sequences, and what happens when one of them dies."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack, aclosing
from pathlib import Path

import pytest
import tritonclient.grpc as grpcclient

from deployment.proxies import NAMES, Balanced, balancing, missing
from harness.client_models import write_client_models
from harness.serving import Served, serving, wait_until
from penstock_client.client import Client

_EACH = [pytest.param(name, marks=pytest.mark.needs(name, missing(name))) for name in NAMES]
_SERVERS = ("server-1", "server-2")

pytestmark = pytest.mark.slow


def _serving(folder: Path, name: str, *models: str) -> AbstractContextManager[Served]:
    """A server of this name; the models lie in the folder."""
    loaded = ("--model-control-mode=explicit", *(f"--load-model={model}" for model in models))
    return serving(folder / "models", folder / f"{name}.log", f"--id={name}", *loaded)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("servers")
    (folder / "models").mkdir()
    write_client_models(folder / "models")
    return folder


@pytest.fixture(scope="module")
def servers(folder: Path) -> Iterator[list[Served]]:
    with ExitStack() as stack:
        yield [stack.enter_context(_serving(folder, name, "copy", "story")) for name in _SERVERS]


@pytest.fixture(scope="module", params=_EACH)
def proxy(
    request: pytest.FixtureRequest,
    servers: list[Served],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Balanced]:
    folder = tmp_path_factory.mktemp(request.param)
    with balancing(request.param, servers, folder) as listening:
        yield listening


def _name_over_http(proxy: Balanced, headers: dict[str, str] | None = None) -> str:
    """The name of the server that answers."""
    asked = urllib.request.Request(f"http://{proxy.http}/v2", headers=headers or {})
    with urllib.request.urlopen(asked, timeout=20) as answer:
        name: str = json.load(answer)["name"]
    return name


def _name_over_grpc(proxy: Balanced, headers: dict[str, str] | None = None) -> str:
    client = grpcclient.InferenceServerClient(proxy.grpc)
    try:
        name: str = client.get_server_metadata(headers=headers).name
    finally:
        client.close()
    return name


_NAME = pytest.mark.parametrize("name_of", [_name_over_http, _name_over_grpc], ids=["http", "grpc"])
_NameOf = Callable[..., str]


@pytest.mark.contract("K-14", "SD-12")
@_NAME
def test_requests_reach_both_servers(proxy: Balanced, name_of: _NameOf) -> None:
    """Envoy chooses at random among two that are idle."""
    seen: set[str] = set()

    def is_known() -> bool:
        seen.add(name_of(proxy))
        return len(seen) == 2

    wait_until(is_known)
    assert seen == {*_SERVERS}


@pytest.mark.contract("K-19")
@_NAME
def test_sequences_keep_to_one_server(proxy: Balanced, name_of: _NameOf) -> None:
    def of_sequence(number: int) -> str:
        return name_of(proxy, {"x-sequence-id": f"sequence-{number}"})

    first = [of_sequence(number) for number in range(12)]
    assert [of_sequence(number) for number in range(12)] == first
    assert {*first} == {*_SERVERS}


@pytest.mark.parametrize("scheme", ["grpc", "http"])
async def test_pieces_of_a_stream_come_while_it_goes_on(
    proxy: Balanced, scheme: str, tmp_path: Path
) -> None:
    """The model says one piece and then nothing more, until its client has left."""
    note = tmp_path / "note"
    async with Client(f"{scheme}://{getattr(proxy, scheme)}") as client:
        story = client.generate("story", "piece ", max_tokens=1, note=str(note))
        async with aclosing(story) as pieces:
            assert await anext(pieces) == "piece 0 "
    wait_until(lambda: note.exists() and note.read_text() != "")
    assert note.read_text() == "left"


@pytest.fixture
def mortal(folder: Path) -> Iterator[Served]:
    """A server that a test may end."""
    with _serving(folder, "mortal", "copy") as server:
        yield server


@pytest.fixture
async def clients(
    servers: list[Served], mortal: Served, tmp_path: Path
) -> AsyncIterator[dict[str, Client]]:
    """Clients of all proxies that are there, each in front of that server and another one."""
    async with AsyncExitStack() as stack:
        opened = {}
        for name in (name for name in NAMES if not missing(name)):
            folder = tmp_path / name
            folder.mkdir()
            proxy = stack.enter_context(balancing(name, [mortal, servers[0]], folder))
            for address in (f"http://{proxy.http}", f"grpc://{proxy.grpc}"):
                opened[f"{name} {address}"] = await stack.enter_async_context(Client(address))
        yield opened


async def _lost(clients: dict[str, Client], times: int) -> dict[str, str]:
    """Ask through each proxy, in turns and without a second attempt; what failed."""
    lost = {}
    for number in range(times):
        for name, client in clients.items():
            try:
                result = await client.infer("copy", {"SMALL": [[number]]})
                assert result["SMALL"].tolist() == [[number]]
            except Exception as error:
                lost[f"{name}, {number}"] = repr(error)
    return lost


@pytest.mark.contract("K-19")
@pytest.mark.needs("a proxy", "" if not all(map(missing, NAMES)) else "there is no proxy")
async def test_death_of_a_server_is_not_noticed_by_clients(
    clients: dict[str, Client], mortal: Served
) -> None:
    """But by those whose requests it has: no proxy sends these again."""
    assert await _lost(clients, 6) == {}
    mortal.process.kill()
    mortal.process.wait(20)
    assert await _lost(clients, 10) == {}
