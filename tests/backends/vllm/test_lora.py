"""LoRA adapters by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.core.errors import InvalidRequestError, ModelLoadError
from penstock_backends.vllm.lora import Adapters, read_adapters


def test_without_a_name_there_is_no_adapter() -> None:
    assert Adapters(None).find(None) is None


@pytest.mark.contract("VL-13")
def test_an_engine_without_adapters_refuses_names() -> None:
    with pytest.raises(InvalidRequestError) as refused:
        Adapters(None).find("alpaca")
    assert refused.value.message == "LoRA feature is not enabled."


@pytest.mark.contract("VL-13")
def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidRequestError) as refused:
        Adapters({"doll": "/a", "sheep": "/b"}).find("bactrian")
    assert refused.value.message == (
        "LoRA bactrian is not supported, we currently support ['doll', 'sheep']"
    )


def test_a_missing_file_fails_the_load(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"no '.*multi_lora\.json'"):
        read_adapters(tmp_path)


@pytest.mark.parametrize("text", ["{", "[]", '{"a": 1}'])
def test_a_file_of_another_form_fails_the_load(tmp_path: Path, text: str) -> None:
    (tmp_path / "multi_lora.json").write_text(text)
    with pytest.raises(ModelLoadError, match=r"multi_lora\.json"):
        read_adapters(tmp_path)
