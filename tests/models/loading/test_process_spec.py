"""What a configuration says of a model's processes, and what of it is refused."""

from __future__ import annotations

import re
from typing import Any

import pytest

from penstock.core.backend import Backend, Traits
from penstock.core.config import ModelConfig, config_from_json
from penstock.core.errors import ConfigError
from penstock.core.flow_control import Window
from penstock.hosting.parent.child import ProcessSpec
from penstock.models.loading.instance_factory import (
    hosting,
    process_spec,
    refuse_process_parameters,
)
from penstock_backends.identity import IdentityBackend


class Untidy(IdentityBackend):
    """Needs a temporary folder that goes with its process."""

    __module__ = IdentityBackend.__module__  # the package that a process imports
    traits = Traits(private_tmp=True)


def spec(backend: type[Backend] = IdentityBackend, **parameters: str) -> ProcessSpec:
    return process_spec(backend, configured(**parameters), None)


def configured(**parameters: str) -> ModelConfig:
    values = {f"penstock.{name}": {"string_value": text} for name, text in parameters.items()}
    return config_from_json({"name": "m", "backend": "fake", "parameters": values})


class Movable(IdentityBackend):
    """Of processes, unless a model asks for threads."""

    __module__ = IdentityBackend.__module__
    traits = Traits(host="process", threads=True)


def test_a_model_moves_to_threads_where_its_backend_allows_it() -> None:
    on_threads = configured(host="thread")
    assert hosting(Movable, configured()) is not None
    assert hosting(Movable, on_threads) is None
    with pytest.raises(ConfigError, match="gives its models another Python, /other/python"):
        hosting(Movable, on_threads, "/other/python")
    with pytest.raises(ConfigError, match=r"'penstock.hang_seconds' is for instances in processes"):
        hosting(Movable, configured(host="thread", hang_seconds="3"))
    with pytest.raises(ConfigError, match=r"must be 'process' or 'thread', got 'moon'"):
        hosting(Movable, configured(host="moon"))


def test_a_backend_of_processes_stays_there_where_it_does_not_say_so() -> None:
    class Still(Movable):
        __module__ = IdentityBackend.__module__
        traits = Traits(host="process")

    with pytest.raises(ConfigError, match=r"must be 'process', got 'thread'"):
        hosting(Still, configured(host="thread"))


def test_a_temporary_folder_is_private_on_request_and_for_engines_that_need_it() -> None:
    assert not spec().private_tmp
    assert not spec(private_tmp="false").private_tmp
    assert spec(private_tmp="true").private_tmp
    assert spec(Untidy).private_tmp
    assert spec(Untidy, private_tmp="true").private_tmp


@pytest.mark.parametrize(
    ("groups", "several"),
    [([{"count": 1}], False), ([{"count": 2}], True), ([{"count": 1}, {"count": 1}], True)],
    ids=["one", "two", "two groups"],
)
def test_batches_are_sent_ahead_to_the_only_instance(
    groups: list[dict[str, int]], several: bool
) -> None:
    config = config_from_json({"name": "m", "backend": "fake", "instance_group": groups})
    assert (process_spec(IdentityBackend, config, None).ahead == 1) is several


@pytest.mark.parametrize(
    "fields",
    [
        {"max_batch_size": 4, "dynamic_batching": {}},
        {"max_batch_size": 4, "sequence_batching": {}},
        {"instance_group": [{"count": 1, "rate_limiter": {"priority": 1}}]},
    ],
    ids=lambda fields: list(fields)[-1],
)
def test_no_batch_is_sent_ahead_where_that_delays_requests(fields: dict[str, Any]) -> None:
    config = config_from_json({"name": "m", "backend": "fake", **fields})
    assert process_spec(IdentityBackend, config, None).ahead == 1


def test_an_engine_that_needs_a_private_folder_cannot_be_denied_it() -> None:
    with pytest.raises(ConfigError, match=r"'penstock\.private_tmp' cannot be 'false'.*'fake'"):
        spec(Untidy, private_tmp="false")


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("private_tmp", "yes", "'true' or 'false'"),
        ("private_tmp", "", "'true' or 'false'"),
        ("restart_hung", "1", "'true' or 'false'"),
        ("hang_seconds", "-1", "a number of seconds, or 0 for never"),
        ("hang_seconds", "", "a number of seconds, or 0 for never"),
        ("hang_seconds", "nan", "a number of seconds, or 0 for never"),
        ("execution_timeout_seconds", "0", "a number of seconds above 0"),
        ("execution_timeout_seconds", "soon", "a number of seconds above 0"),
    ],
)
def test_values_of_another_kind_are_refused(name: str, value: str, wanted: str) -> None:
    expected = f"parameter 'penstock.{name}' must be {wanted}, got '{value}'"
    with pytest.raises(ConfigError, match=f"^{re.escape(expected)}$"):
        process_spec(IdentityBackend, configured(**{name: value}), None)


def test_a_process_is_hung_after_half_a_minute_or_as_said() -> None:
    assert (spec().hang_seconds, spec().restart_hung) == (30.0, False)
    assert spec(hang_seconds="0").hang_seconds == 0.0
    assert spec(hang_seconds="2.5", restart_hung="true").hang_seconds == 2.5
    assert spec(restart_hung="true").restart_hung


def test_what_is_never_hung_cannot_be_restarted_for_it() -> None:
    with pytest.raises(ConfigError, match=r"'penstock\.restart_hung' has no effect where"):
        spec(hang_seconds="0", restart_hung="true")


@pytest.mark.parametrize(
    "name", ["execution_timeout_seconds", "hang_seconds", "private_tmp", "restart_hung"]
)
def test_what_is_for_processes_is_refused_for_threads(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"^parameter 'penstock\.{name}' is for instances in"):
        refuse_process_parameters(configured(**{name: "1"}))


@pytest.mark.contract("CL-27")
@pytest.mark.parametrize(("limit", "responses"), [(None, 16), (2**31 - 1, 16), (3, 3)])
def test_the_server_may_limit_the_window_of_responses(limit: int | None, responses: int) -> None:
    window = process_spec(IdentityBackend, configured(), None, limit).window
    assert (window.responses, window.size) == (responses, Window().size)
