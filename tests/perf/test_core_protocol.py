"""`penstock perf` against servers with nothing but the core of the KServe v2 protocol."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock_client.perf.errors import Status
from perf.conftest import Perf
from perf.core_server import CoreServer, core_server


@pytest.fixture(scope="module")
def core() -> Iterator[CoreServer]:
    with core_server() as server:
        yield server


def _address(core: CoreServer, wire: str) -> list[str]:
    return ["-i", wire, "-u", core.grpc if wire == "grpc" else core.http]


@pytest.mark.parametrize("wire", ["grpc", "http"])
def test_metadata_alone_is_enough(perf: Perf, core: CoreServer, wire: str) -> None:
    """There are neither configuration nor statistics; over HTTP tensors have to be JSON."""
    ran = perf("-m", "rows", *_address(core, wire), "--shape", "IN:2,4", "-n", "20", "-c", "2")
    assert ran.status == Status.FINE, ran.printed
    assert (ran.point["requests"], ran.point["failed"]) == (20, 0)
    assert ran.point["server"] == {"models": []}


@pytest.mark.parametrize("wire", ["grpc", "http"])
def test_without_a_configuration_shapes_are_whole(perf: Perf, core: CoreServer, wire: str) -> None:
    ran = perf("-m", "rows", *_address(core, wire))
    assert ran.status == Status.USAGE
    assert "such as --shape IN:4,4" in ran.printed


@pytest.mark.parametrize("wire", ["grpc", "http"])
@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("missing", "refused"),
        ("bare", "names no inputs of model 'bare'"),
        ("odd", "tensor 'IN' has datatype 'STRING'"),
    ],
)
def test_models_that_nothing_can_be_sent_to_are_told_of(
    perf: Perf, core: CoreServer, wire: str, model: str, words: str
) -> None:
    ran = perf("-m", model, *_address(core, wire))
    assert ran.status == Status.UNREACHABLE
    assert words in ran.printed


def test_binary_tensors_are_sent_where_they_are_asked_for(perf: Perf, core: CoreServer) -> None:
    words = ["--shape", "IN:2,4", "--input-tensor-format", "binary", "-n", "2"]
    ran = perf("-m", "rows", *_address(core, "http"), *words)
    assert ran.status == Status.FAILURES
    (error,) = ran.point["errors"]
    assert error.startswith("HTTP status 422")


def test_shared_memory_that_a_server_lacks_is_told_of(perf: Perf, core: CoreServer) -> None:
    words = ["--shape", "IN:2,4", "--shared-memory", "system"]
    ran = perf("-m", "rows", *_address(core, "grpc"), *words)
    assert ran.status == Status.UNREACHABLE
    assert "refused SystemSharedMemoryRegister: UNIMPLEMENTED" in ran.printed
