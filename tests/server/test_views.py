"""What a server tells of itself and its models: metadata, statistics, the index."""

from __future__ import annotations

import pytest

from fakes import make_request, marks, model_config, write_model
from harness.recorded import answers, needs_answers
from penstock.core.errors import InferenceError, InvalidRequestError
from penstock.models.serving.answers import Gauge, ModelMetadata, TensorMetadata
from penstock.server.answers import ModelIndexEntry, ServerMetadata
from server.house import House, index

# -- metadata -------------------------------------------------------------------------------------


async def test_a_server_says_who_it_is(house: House) -> None:
    metadata = await house.server.metadata()
    assert (metadata.name, metadata.version) == ("penstock", "1.2.3")


@pytest.mark.contract("G-05")
@needs_answers
def test_a_server_has_the_extensions_of_the_real_one_in_their_order() -> None:
    answer = answers("grpc_metadata.json")["server_metadata"]["response"]
    assert list(ServerMetadata("", "").extensions) == answer["extensions"]


@pytest.mark.parametrize(("version", "versions"), [("", ("1", "3")), ("3", ("3",))])
async def test_a_model_tells_its_tensors_and_versions(
    house: House, version: str, versions: tuple[str, ...]
) -> None:
    server = await house.started("two")
    assert await server.model_metadata("two", version) == ModelMetadata(
        "two",
        versions,
        "fake",
        (TensorMetadata("IN", "INT32", (-1, -1)),),
        (TensorMetadata("OUT", "INT32", (-1, -1)),),
    )


@pytest.mark.contract("AC-15")
async def test_a_model_shows_its_configuration(house: House) -> None:
    server = await house.started("m")
    assert await server.model_config("m", "") == model_config()


# -- statistics -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "version", "expected"),
    [
        ("", "", [("m", "1"), ("two", "1"), ("two", "3")]),
        ("", "7", [("m", "1"), ("two", "1"), ("two", "3")]),
        ("two", "", [("two", "1"), ("two", "3")]),
        ("two", "3", [("two", "3")]),
    ],
)
async def test_statistics_are_those_of_one_version_of_a_model_or_of_all(
    house: House, name: str, version: str, expected: list[tuple[str, str]]
) -> None:
    server = await house.started("two", "m")
    found = await server.statistics(name, version)
    assert [(statistics.name, statistics.version) for statistics in found] == expected


@needs_answers
@pytest.mark.parametrize("case", ["model_statistics simple/7", "model_statistics nope/"])
async def test_statistics_are_refused_in_the_words_of_the_real_server(
    house: House, case: str
) -> None:
    answer = answers("grpc_metadata.json")[case]
    write_model(house.path, "simple")
    server = await house.started("simple")
    with pytest.raises(InvalidRequestError) as refused:
        await server.statistics(answer["request"]["name"], answer["request"].get("version", ""))
    assert refused.value.message == answer["message"]


@pytest.mark.parametrize("version", ["", "1"])
async def test_statistics_of_an_unknown_model_are_refused_whatever_the_version(
    house: House, version: str
) -> None:
    server = await house.started("m")
    with pytest.raises(InvalidRequestError, match=r"^requested model 'nope' is not available$"):
        await server.statistics("nope", version)


async def test_a_model_that_was_unloaded_has_no_statistics(house: House) -> None:
    server = await house.started("m")
    await server.unload("m")
    with pytest.raises(InvalidRequestError, match=r"^requested model 'm' is not available$"):
        await server.statistics("m", "")


async def test_statistics_count_what_was_inferred(house: House) -> None:
    server = await house.started("m")
    await marks(server.infer(make_request(rows=3)))
    (snapshot,) = server.snapshot()
    assert snapshot.statistics.success.count == 1
    assert (snapshot.statistics.inference_count, snapshot.statistics.pending) == (3, 0)


async def test_gauges_are_those_of_every_model(house: House) -> None:
    server = await house.started("m", "two")
    for number, instance in enumerate(house.builder.instances):
        instance.numbers = {"load": float(number)}
    assert {(gauge.model, gauge.version) for gauge in server.gauges()} == {
        ("m", "1"),
        ("two", "1"),
        ("two", "3"),
    }
    assert all(isinstance(gauge, Gauge) for gauge in server.gauges())


# -- the index ------------------------------------------------------------------------------------


@pytest.mark.contract("G-11")
async def test_the_index_lists_models_that_were_never_loaded_by_name_alone(house: House) -> None:
    server = await house.started()
    assert await server.index() == (ModelIndexEntry("m"), ModelIndexEntry("two"))
    assert await server.index(ready_only=True) == ()


@pytest.mark.contract("X-16")
async def test_the_index_lists_every_version_with_its_state_and_reason(house: House) -> None:
    house.builder.failures[1] = RuntimeError("broken")
    server = await house.started("two")
    assert await index(server) == [
        "m",
        "two 1 UNAVAILABLE Internal: RuntimeError: broken",
        "two 3 UNAVAILABLE unloaded",
    ]


async def test_a_model_that_stays_down_is_not_ready_in_the_index(house: House) -> None:
    server = await house.started("m")
    house.builder.instances[0].give_up()
    (line, *_) = await index(server)
    assert line.startswith("m 1 UNAVAILABLE model 'm', instance ")
    assert await index(server, ready_only=True) == []


async def test_the_index_can_be_limited_to_what_is_ready(house: House) -> None:
    server = await house.started("m", "two")
    await house.unload("m")
    assert await index(server, ready_only=True) == ["two 1 READY", "two 3 READY"]
    assert (await index(server))[0] == "m 1 UNAVAILABLE unloaded"


async def test_a_model_without_any_version_to_serve_is_not_listed_once_it_was_tried(
    house: House,
) -> None:
    """As the real server does it."""
    write_model(house.path, "m", config="version_policy { specific { versions: [7] } }")
    server = await house.started("m")
    assert await index(server) == ["two"]


@pytest.mark.contract("C-01")
async def test_the_index_says_where_a_configuration_cannot_be_parsed(house: House) -> None:
    (house.path / "m" / "config.pbtxt").write_text('backend: "fake"\ninputs { }')
    server = await house.started("m")
    (line, _) = await index(server)
    assert line.startswith(
        "m  UNAVAILABLE failed to load 'm', failed to poll from model repository"
    )
    assert "config.pbtxt:2:1: " in line
    write_model(house.path)
    await server.load("m", {})
    assert (await index(server))[0] == "m 1 READY"


@pytest.mark.contract("M-05")
async def test_the_index_says_beside_what_serves_on_why_its_reload_failed(house: House) -> None:
    server = await house.started("m")
    house.builder.failures[1] = RuntimeError("bad weights")
    with pytest.raises(InferenceError):
        await server.load("m", {})
    (line, _) = await index(server)
    assert line == "m 1 READY reload failed: Internal: RuntimeError: bad weights"
    (house.path / "m" / "config.pbtxt").write_text("no_such_field: 1")
    with pytest.raises(InferenceError):
        await server.load("m", {})
    (line, _) = await index(server)
    assert line.startswith("m 1 READY reload failed: failed to load 'm', failed to poll from model")
    assert "config.pbtxt:1:1: " in line
    await house.unload("m")
    assert (await index(server))[0] == "m 1 UNAVAILABLE unloaded"
