"""Channelz: ids, and lists page by page."""

from __future__ import annotations

import grpc
import pytest

from penstock.rpc.channelz.servicer import page
from penstock.rpc.context import StatusError
from penstock.rpc.status import StatusCode
from rpc.channelz.endpoint import Server, other_client


async def test_server_is_found_by_its_id(server: Server) -> None:
    itself = await server.itself()
    again = (await server.ask("GetServer", server_id=itself.ref.server_id)).server
    assert again.ref == itself.ref
    assert again.data.calls_started == itself.data.calls_started + 1


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("GetServer", "server_id"),
        ("GetServerSockets", "server_id"),
        ("GetChannel", "channel_id"),
        ("GetSubchannel", "subchannel_id"),
        ("GetSocket", "socket_id"),
    ],
)
@pytest.mark.parametrize("number", [-1, 0, 2**31, 2**63 - 1])
async def test_unknown_id_is_not_found(server: Server, name: str, field: str, number: int) -> None:
    assert await server.status(name, **{field: number}) is grpc.StatusCode.NOT_FOUND


async def test_id_of_something_else_is_not_found(server: Server) -> None:
    itself = await server.itself()
    wrong = itself.listen_socket[0].socket_id
    assert await server.status("GetServer", server_id=wrong) is grpc.StatusCode.NOT_FOUND
    wrong = itself.ref.server_id
    assert await server.status("GetSocket", socket_id=wrong) is grpc.StatusCode.NOT_FOUND


async def test_there_are_no_channels(server: Server) -> None:
    answer = await server.ask("GetTopChannels")
    assert (list(answer.channel), answer.end) == ([], True)


async def test_sockets_come_in_pages(server: Server) -> None:
    number = (await server.itself()).ref.server_id
    async with other_client(server) as second, other_client(server) as third:
        await second.call("ServerLive")
        await third.call("ServerLive")
        found: list[int] = []
        ends: list[bool] = []
        start = 0
        while not ends or not ends[-1]:
            answer = await server.ask(
                "GetServerSockets", server_id=number, start_socket_id=start, max_results=2
            )
            found += [ref.socket_id for ref in answer.socket_ref]
            ends.append(answer.end)
            start = found[-1] + 1
        assert (len(found), ends) == (3, [False, True])
        assert found == sorted(set(found))
        at_last = await server.ask(
            "GetServerSockets", server_id=number, start_socket_id=found[-1], max_results=1
        )
        assert [ref.socket_id for ref in at_last.socket_ref] == found[-1:]
        assert at_last.end
        beyond = await server.ask("GetServerSockets", server_id=number, start_socket_id=start)
        assert (list(beyond.socket_ref), beyond.end) == ([], True)


async def test_servers_begin_with_the_id_that_is_asked_for(server: Server) -> None:
    number = (await server.itself()).ref.server_id
    for start, found in ((-5, True), (number, True), (number + 1, False)):
        answer = await server.ask("GetServers", start_server_id=start)
        assert (number in {one.ref.server_id for one in answer.server}) is found
        assert answer.end


@pytest.mark.parametrize("name", ["GetTopChannels", "GetServers", "GetServerSockets"])
async def test_page_of_less_than_nothing_is_refused(server: Server, name: str) -> None:
    fields = {"max_results": -1}
    if name == "GetServerSockets":
        fields["server_id"] = (await server.itself()).ref.server_id
    assert await server.status(name, **fields) is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("there", "wanted", "got", "end"),
    [
        (0, 0, 0, True),
        (0, 3, 0, True),
        (3, 3, 3, True),
        (4, 3, 3, False),
        (100, 0, 100, True),
        (101, 0, 100, False),
        (500, 2**63 - 1, 500, True),
        (501, 2**63 - 1, 500, False),
    ],
)
def test_pages(there: int, wanted: int, got: int, end: bool) -> None:
    assert page(iter(range(there)), wanted) == (list(range(got)), end)


def test_negative_page() -> None:
    with pytest.raises(StatusError) as caught:
        page(iter([1]), -1)
    assert caught.value.code is StatusCode.INVALID_ARGUMENT
