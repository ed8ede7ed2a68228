"""Model control from within a model."""

from __future__ import annotations

import pytest

from backends.python.scripted import FakeRuntime
from penstock_backends.python.pb_utils.control import is_model_ready, load_model, unload_model
from penstock_backends.python.pb_utils.exception import TritonModelException


@pytest.mark.contract("PY-32")
def test_load_asks_the_server(process: FakeRuntime) -> None:
    load_model("other")
    load_model(model_name="made", config="{}", files={"file:1/model.py": b"x"})
    assert process.controls == [
        ("load", "other", "", {}),
        ("load", "made", "{}", {"file:1/model.py": b"x"}),
    ]


@pytest.mark.contract("PY-32")
def test_unload_asks_the_server(process: FakeRuntime) -> None:
    unload_model("other")
    unload_model(model_name="other", unload_dependents=True)
    assert process.controls == [("unload", "other", False), ("unload", "other", True)]


@pytest.mark.contract("PY-32")
@pytest.mark.parametrize("answer", [True, False])
def test_readiness_is_what_the_server_says(process: FakeRuntime, answer: bool) -> None:
    process.answer = answer
    assert is_model_ready(model_name="other", model_version="1") is answer
    assert process.controls == [("ready", "other", "1")]


def test_reason_of_the_server_is_in_the_error(process: FakeRuntime) -> None:
    process.problem = "failed to load 'nope', failed to poll from model repository"
    with pytest.raises(TritonModelException) as error:
        load_model("nope")
    assert str(error.value) == f"Failed to load model: {process.problem}"


@pytest.mark.contract("PY-32")
def test_files_are_bytes_by_name(process: FakeRuntime) -> None:
    with pytest.raises(TypeError, match=r"^Object of type 'str' is not an instance of 'bytes'$"):
        load_model("m", "{}", {"file:1/model.py": "text"})  # type: ignore[arg-type]
    with pytest.raises(TritonModelException, match="files should be a dictionary"):
        load_model("m", "{}", ["x"])  # type: ignore[arg-type]
