"""Arguments of `model.json` that vLLM has given another name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.core.errors import ModelLoadError
from penstock_backends.vllm.arguments.engine_args import EngineArguments
from penstock_backends.vllm.arguments.engine_keywords import with_present_names

_TODAY = {"model", "enable_log_requests"}
_BEFORE = {"model", "disable_log_requests"}


def named(known: set[str], **values: Any) -> dict[str, Any]:
    return with_present_names(EngineArguments(values, Path("model.json")), known).values


@pytest.mark.parametrize(
    ("given", "taken"), [("true", False), (True, False), ("False", True), (False, True)]
)
def test_an_argument_that_vllm_turned_round_is_turned_round(
    given: object, taken: bool, caplog: pytest.LogCaptureFixture
) -> None:
    values = named(_TODAY, model="m", disable_log_requests=given)
    assert values == {"model": "m", "enable_log_requests": taken}
    assert "'disable_log_requests' in 'model.json' is 'enable_log_requests'" in caplog.text


def test_the_name_of_today_counts() -> None:
    values = named(_TODAY, disable_log_requests=True, enable_log_requests=True)
    assert values == {"enable_log_requests": True}


def test_an_older_vllm_gets_what_it_knows() -> None:
    assert named(_BEFORE, disable_log_requests="true") == {"disable_log_requests": "true"}


def test_no_boolean_is_refused_by_name() -> None:
    with pytest.raises(ModelLoadError, match=r"'disable_log_requests' in .* must be true"):
        named(_TODAY, disable_log_requests="maybe")
