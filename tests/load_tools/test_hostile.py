"""Hostile requests: each kind once, small, on one server; and the tables of all of them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import grpc
import pytest
from loadtest.hostile import bodies, rpcs
from loadtest.hostile.findings import finding_rows
from loadtest.hostile.routes import gateway_routes, paths, places
from loadtest.hostile.row import Row, Sizes, statuses
from loadtest.hostile.site import Site

from penstock import gateway
from penstock.demo import write_demo
from penstock.protocol import reflection_pb2, reflection_pb2_grpc

_SMALL = Sizes(1 / 16)
_GENEROUS = 192.0  # MiB more than the scenario allows: small requests are seen beside much else


def _each_kind_of(rows: Iterator[Row]) -> Iterator[Row]:
    """Each kind once, and of as many RPCs or routes as there are kinds."""
    kinds: dict[str, list[Row]] = {}
    for row in rows:
        kinds.setdefault(row.name.rpartition("  ")[2], []).append(row)
    for number, same in enumerate(kinds.values()):
        yield same[number * 7 % len(same)]


def _short() -> list[Row]:
    messages = (row for row in rpcs.rpc_rows() if row.name.rpartition("  ")[2] in rpcs.KINDS)
    findings = [row for row in finding_rows() if row.name.startswith("C1") and not row.options]
    return [*findings, *_each_kind_of(messages), *_each_kind_of(bodies.route_rows())]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("hostile")
    write_demo(folder / "demo", report=lambda _: None)
    shutil.copytree(folder / "demo" / "simple", folder / "models" / "simple")
    site = Site(folder / "models", folder / "rogues", folder / "server.log", idle=0.02)
    with closing(site):
        yield site


@pytest.mark.slow
@pytest.mark.parametrize("row", _short(), ids=lambda row: row.name)
def test_hostile_request_is_answered_and_others_are_served(site: Site, row: Row) -> None:
    result = site.run(row, _SMALL)
    assert result.statuses <= row.expected, result.answers
    assert result.died == ""
    assert result.failed == 0
    assert result.answered > 0
    assert result.memory <= result.allowed + _GENEROUS


@pytest.mark.slow
def test_every_service_that_is_served_has_hostile_rows(site: Site) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{site.ports['grpc']}") as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        asked = reflection_pb2.ServerReflectionRequest(list_services="*")
        (answer,) = stub.ServerReflectionInfo(iter([asked]))
    served = {service.name for service in answer.list_services_response.service}
    assert served == {rpc.service for rpc in rpcs.rpcs()}


def test_every_rpc_has_every_kind_of_row() -> None:
    names = {row.name for row in rpcs.rpc_rows()}
    assert {f"{rpc.label}  {kind}" for rpc in rpcs.rpcs() for kind in rpcs.KINDS} <= names


def test_every_repeated_field_of_a_request_has_rows() -> None:
    names = {row.name for row in rpcs.rpc_rows()}
    assert "ModelInfer  many inputs.contents.bytes_contents, gzip" in names
    assert "TraceSetting  many settings" in names


def test_every_route_has_every_kind_of_row() -> None:
    names = {row.name for row in bodies.route_rows()}
    wanted = {f"{place.label}  {kind}" for place in places() for kind in bodies.KINDS}
    assert wanted == names


def test_every_route_of_the_router_is_reached_by_a_place() -> None:
    asked = [place.path for place in places() if place.port == "http"]
    patterns = [route.path for route in gateway_routes()]
    found = {next(each for each in patterns if re.fullmatch(each, path)) for path in asked}
    assert found == set(patterns)


def test_every_http_port_has_places() -> None:
    """Each is opened by `listening`, which gets the name of what is served there."""
    sources = Path(gateway.__path__[0]).rglob("*.py")
    opened = sum(source.read_text().count("async with listening(") for source in sources)
    assert opened == len({place.port for place in places()})


def test_pattern_gives_a_path_for_each_branch() -> None:
    found = paths("/v1/(?:a(?:/b)?|c)|/m/(?P<model>[^/]+)(?:/versions/(?P<version>[0-9]+))?/x")
    assert found == ["/v1/a", "/v1/a/b", "/v1/c", "/m/simple/x"]


def test_error_that_the_server_did_not_expect_is_no_refusal() -> None:
    answers = ["500: Unable to parse 'inputs'", "500: unexpected error, see the server's log"]
    assert statuses(answers) == {"500", "unexpected error"}


def test_names_of_rows_differ() -> None:
    names = [row.name for row in (*finding_rows(), *rpcs.rpc_rows(), *bodies.route_rows())]
    assert len(names) == len(set(names))
