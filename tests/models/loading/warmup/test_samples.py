"""What the samples of a configuration stand for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fakes import model_config
from penstock.core.config import ModelConfig, ModelInput, Warmup, WarmupInput
from penstock.core.errors import InferenceError, InternalError, InvalidRequestError
from penstock.core.tensor import DataType, encode_elements
from penstock.models.loading.warmup import WarmupSample, read_samples

_SOURCES = ("random_data", "input_data_file")

pytestmark = pytest.mark.contract("I-19")


def _config(
    *, dims: tuple[int, ...] = (4,), data_type: DataType = DataType.INT32, **sample: Any
) -> ModelConfig:
    source: dict[str, Any] = {n: sample.pop(n) for n in _SOURCES if n in sample}
    name = sample.pop("input", "IN")
    tensor = WarmupInput(data_type=data_type, dims=dims, **(source or {"zero_data": True}))
    warmup = Warmup(name="s", inputs={name: tensor}, **{"batch_size": 1, **sample})
    declared = ModelInput(name="IN", data_type=data_type, dims=(-1,))
    return model_config(model_warmup=(warmup,), input=(declared,))


def _only(config: ModelConfig, folder: Path = Path("/nowhere")) -> WarmupSample:
    (sample,) = read_samples(config, folder)
    return sample


def _error(config: ModelConfig, folder: Path = Path("/nowhere")) -> InferenceError:
    with pytest.raises(InferenceError) as failed:
        read_samples(config, folder)
    return failed.value


def _write(folder: Path, content: bytes) -> Path:
    (folder / "warmup").mkdir()
    (folder / "warmup" / "f").write_bytes(content)
    return folder


def test_a_request_of_a_batching_model_is_one_row() -> None:
    tensor = _only(_config(batch_size=3, count=2)).request.inputs["IN"]
    assert (tensor.shape, tensor.numpy().tolist()) == ((1, 4), [[0, 0, 0, 0]])


def test_a_sample_says_how_many_equal_requests_make_its_batch_and_how_often_it_runs() -> None:
    sample = _only(_config(batch_size=3, count=2))
    assert (sample.name, sample.size, sample.count) == ("s", 3, 2)


def test_a_sample_without_count_runs_once() -> None:
    assert _only(_config()).count == 1


def test_a_sample_of_batch_size_zero_is_skipped() -> None:
    assert read_samples(_config(batch_size=0), Path("/nowhere")) == []


@pytest.mark.parametrize(
    ("data_type", "high"),
    [(DataType.INT8, 100), (DataType.INT64, 100), (DataType.FP16, 1), (DataType.FP64, 1)],
)
def test_random_numbers_are_small(data_type: DataType, high: float) -> None:
    sample = _only(_config(random_data=True, data_type=data_type, dims=(50,)))
    values = sample.request.inputs["IN"].numpy()
    assert values.dtype == data_type.numpy
    assert (values >= 0).all()
    assert (values <= high).all()
    assert len(np.unique(values)) > 5


@pytest.mark.parametrize("data_type", [DataType.BF16, DataType.BOOL, DataType.UINT8])
def test_random_data_is_there_for_every_type(data_type: DataType) -> None:
    sample = _only(_config(random_data=True, data_type=data_type))
    assert sample.request.inputs["IN"].nbytes == 4 * data_type.itemsize


@pytest.mark.parametrize("source", [{"random_data": True}, {}])
def test_strings_that_are_made_up_are_empty(source: dict[str, Any]) -> None:
    sample = _only(_config(data_type=DataType.BYTES, **source))
    assert sample.request.inputs["IN"].elements() == [b""] * 4


def test_data_come_from_a_file_which_may_hold_more(tmp_path: Path) -> None:
    folder = _write(tmp_path, np.arange(9, dtype=np.int32).tobytes())
    sample = _only(_config(input_data_file="f"), folder)
    assert sample.request.inputs["IN"].numpy().tolist() == [[0, 1, 2, 3]]


def test_strings_come_from_a_file_with_their_lengths(tmp_path: Path) -> None:
    folder = _write(tmp_path, encode_elements([b"ab", b"c"]))
    config = _config(input_data_file="f", data_type=DataType.BYTES, dims=(2,))
    assert _only(config, folder).request.inputs["IN"].elements() == [b"ab", b"c"]


@pytest.mark.contract("I-20")
def test_a_file_that_is_too_short_is_refused(tmp_path: Path) -> None:
    error = _error(_config(input_data_file="f"), _write(tmp_path, b"1234"))
    assert isinstance(error, InvalidRequestError)
    assert error.message == (
        "[request id: <id_unknown>] warmup setting expects 16 bytes, "
        "but the data provided from fonly has 4 bytes"
    )


@pytest.mark.contract("I-20")
def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    error = _error(_config(input_data_file="no"), tmp_path)
    assert isinstance(error, InternalError)
    assert error.message == "failed to open text file for read warmup/no: No such file or directory"


@pytest.mark.contract("I-20")
@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            {"dims": (-1,)},
            "warmup setting expects all variable-size dimensions are specified for input 'IN'",
        ),
        ({"input": "NOPE"}, "expected 1 inputs but got 0 inputs for model 'm'"),
    ],
)
def test_samples_are_refused_as_requests_are(change: dict[str, Any], text: str) -> None:
    assert text in _error(_config(**change)).message


@pytest.mark.contract("I-20")
def test_a_tensor_without_a_source_is_refused() -> None:
    tensor = WarmupInput(data_type=DataType.INT32, dims=(4,))
    config = model_config(model_warmup=(Warmup("s", 1, {"IN": tensor}),))
    text = "warmup setting expects input 'IN' to have input_data_type set"
    assert _error(config).message == f"[request id: <id_unknown>] {text}"


@pytest.mark.contract("I-21")
def test_a_tensor_that_clients_do_not_send_reaches_the_model() -> None:
    zeros = WarmupInput(data_type=DataType.INT32, dims=(1,), zero_data=True)
    config = model_config(model_warmup=(Warmup("s", 1, {"IN": zeros, "START": zeros}),))
    assert set(_only(config).request.inputs) == {"IN", "START"}


@pytest.mark.contract("I-20")
@pytest.mark.parametrize(("most", "size"), [(8, 9), (0, 2)])
def test_a_batch_that_is_too_large_is_refused(most: int, size: int) -> None:
    config = replace(_config(batch_size=size), max_batch_size=most)
    refusal = f"batch size {size} for 'm_0', max allowed is {max(1, most)}; "
    told = f"failed to run warmup sample 's': {refusal * size}"
    assert _error(config).message == told


def test_a_refusal_of_any_batch_is_short() -> None:
    assert len(_error(_config(batch_size=(1 << 32) - 1)).message) < 10_000
