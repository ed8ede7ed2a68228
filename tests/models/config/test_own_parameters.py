"""Parameters of Penstock's own are those of one table, and others are refused by name."""

import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from harness.outcomes import raises_nothing
from models.config.validation.written import configured, refusal
from penstock.models.config.own_parameters import READERS, unknown_parameter
from penstock.models.config.validation import validate_polled


@pytest.mark.parametrize("name", [*READERS, "threads", "Penstock", "penstock"])
def test_known_names_and_those_of_others_may_stand(name: str) -> None:
    with raises_nothing():
        validate_polled(configured(parameters={name: {"string_value": "1"}}))


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("penstock.private_temp", "penstock.private_tmp"),
        ("penstock.gather_percents", "penstock.gather_percent"),
        ("penstock.memory_limit", "penstock.memory_limit_bytes"),
        ("penstock.HOST", "penstock.host"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(name: str, nearest: str) -> None:
    assert refusal(configured(parameters={name: {"string_value": "1"}})) == (
        f"model 'm': '{name}' is not a parameter that Penstock knows; did you mean '{nearest}'?"
    )


def test_a_name_like_no_other_is_refused_alone() -> None:
    problem = unknown_parameter("penstock.qqqq")
    assert problem == "'penstock.qqqq' is not a parameter that Penstock knows"


@pytest.mark.parametrize("name", READERS)
def test_each_parameter_is_named_in_the_package_that_reads_it(name: str) -> None:
    found = find_spec(READERS[name])
    assert found is not None
    assert found.submodule_search_locations is not None
    [folder] = found.submodule_search_locations
    sources = (file.read_text() for file in Path(folder).rglob("*.py"))
    assert any(f'"{name}"' in source for source in sources)


_OTHERS = {
    *(f"penstock.{group}" for group in ("applications", "audit", "backends", "caches", "commands")),
    "penstock.instance",  # attributes of spans
    "penstock.requests_not_recorded",
    "penstock.saved_model",  # a package of protobuf's
}


def _names_in(package: str) -> Iterator[str]:
    """Literals of a package's modules in the form of such a name, which are no module's."""
    found = find_spec(package)
    assert found is not None
    assert found.submodule_search_locations is not None
    for file in Path(found.submodule_search_locations[0]).rglob("*.py"):
        for told in re.findall(r'"(penstock\.[a-z_]+)"', file.read_text()):
            if find_spec(told) is None:
                yield told


def test_each_parameter_that_is_read_may_stand() -> None:
    """What the table lacks is refused at load, whatever its reader would make of it."""
    names = {*_names_in("penstock"), *_names_in("penstock_backends")}
    assert READERS.keys() == names - _OTHERS
