"""Which environment variables model processes get."""

from __future__ import annotations

import os

import pytest

from penstock.system.model_variables import VARIABLE, pass_also, passed_on


@pytest.mark.parametrize(
    "name", ["PATH", "LC_ALL", "CUDA_VISIBLE_DEVICES", "HF_TOKEN", "VLLM_USE_V1", "NO_PROXY"]
)
def test_what_models_need_is_passed_on(name: str) -> None:
    assert passed_on({name: "x"}) == {name: "x"}


@pytest.mark.parametrize(
    "name",
    [
        "ADMIN_SECRET",
        "AWS_SECRET_ACCESS_KEY",
        "TRITON_AWS_MOUNT_DIRECTORY",
        "PATHS",
        "PIP_INDEX_URL",
    ],
)
def test_nothing_else_is(name: str) -> None:
    assert passed_on({name: "x"}) == {}


def test_names_and_beginnings_can_be_added() -> None:
    variables = {"AWS_REGION": "r", "TOKEN": "t", "TOKENS": "", VARIABLE: "AWS_*, TOKEN"}
    assert set(passed_on(variables)) == {"AWS_REGION", "TOKEN", VARIABLE}


def test_a_star_passes_everything_on() -> None:
    variables = {"TOKEN": "t", "TRITON_AWS_KEY": "k", VARIABLE: "*"}
    assert passed_on(variables) == variables


def test_added_names_hold_for_every_process_started_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "ONE")
    pass_also(["TWO", "THREE_*"])
    monkeypatch.setenv("THREE_4", "x")
    assert passed_on(os.environ)["THREE_4"] == "x"
    assert os.environ[VARIABLE] == "ONE,TWO,THREE_*"
