"""What files of PyTorch are read, how their tensors are found, and what is refused."""

from __future__ import annotations

import re
import wave
from collections.abc import Awaitable, Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from backends.pytorch.real.conftest import Opened
from penstock.backend import (
    DataType,
    InferenceRequest,
    InternalError,
    InvalidRequestError,
    ModelLoadError,
    Tensor,
)
from penstock.models.config.pbtxt import read_pbtxt
from penstock.testing import running
from penstock_backends.pytorch import PyTorchBackend

Ask = Callable[..., Awaitable[list[Any]]]

A, B = np.array([[5, 6, 7, 8]], np.float32), np.array([[1, 2, 3, 4]], np.float32)


@pytest.mark.contract("B-08", "R-15", "R-16")
@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        ("by_name", {"right": B, "left": A}),
        ("by_index", {"B__1": B, "A__0": A}),
        ("by_order", {"q": B, "p": A}),
        ("exported", {"left": A, "right": B}),
        ("compiled", {"ARGS[0]": A, "ARGS[1]": B}),
    ],
)
async def test_tensors_are_found_by_name_index_order_or_place(
    ask: Ask, model: str, inputs: dict[str, Any]
) -> None:
    found = {tuple(tensor.numpy()[0]) for tensor in await ask(model, inputs)}
    assert found == {(6, 8, 10, 12), (4, 4, 4, 4)}


@pytest.mark.contract("B-08")
async def test_outputs_by_index_are_not_in_the_order_of_the_configuration(ask: Ask) -> None:
    difference, total = await ask("by_index", {"B__1": B, "A__0": A})
    assert (difference.numpy()[0, 0], total.numpy()[0, 0]) == (4, 6)


@pytest.mark.contract("B-08")
async def test_order_is_taken_with_a_warning(ask: Ask, caplog: pytest.LogCaptureFixture) -> None:
    await ask("by_order", {"q": B, "p": A})
    assert "its inputs are taken in the order of the configuration" in caplog.text


@pytest.mark.contract("B-08")
async def test_one_dictionary_has_the_names_of_the_configuration_as_keys(ask: Ask) -> None:
    [output] = await ask("keyed", {"B": B, "A": A})
    assert output.numpy().tolist() == [[4, 4, 4, 4]]


@pytest.mark.contract("B-10")
async def test_strings_are_lists_of_one_dimension(ask: Ask) -> None:
    [output] = await ask("texts", {"T": ["a", "ü"]})
    assert [text.decode() for text in output.elements()] == ["a!", "ü!"]
    with pytest.raises(InvalidRequestError, match="only supports 1 dimensional List of String"):
        await ask("texts", {"T": np.array([["a"]], object)})


async def test_bytes_that_are_no_text_are_an_error(ask: Ask) -> None:
    with pytest.raises(InternalError, match="PyTorch execute failure: 'utf-8' codec"):
        await ask("texts", {"T": np.array([b"\xff"], object)})


async def test_texts_are_tokenized_before_an_encoder(ask: Ask) -> None:
    """Of different lengths, so that the shorter one is filled up."""
    [vectors] = await ask("encoder", {"TEXT": [["one two three"], ["two"]]})
    assert vectors.numpy().tolist() == [[6, 3], [2, 1]]


async def test_files_of_images_and_audio_come_as_tensors(ask: Ask) -> None:
    image, sound = BytesIO(), BytesIO()
    Image.new("RGB", (40, 30), (200, 64, 8)).save(image, "PNG")
    with wave.open(sound, "wb") as file:
        file.setparams((1, 2, 8000, 4, "NONE", ""))
        file.writeframes(np.array([0, 3, 1234, -9], "<i2").tobytes())
    rows = {"pixels": image, "sound": sound}
    given = {name: [[one.getvalue()]] * 2 for name, one in rows.items()}
    [answer] = await ask("bright", given)
    assert answer.numpy().tolist() == [[200, 64, 8, 1234]] * 2


async def test_memory_of_a_client_is_not_written_to(ask: Ask) -> None:
    theirs = A.copy()
    theirs.flags.writeable = False
    [output] = await ask("in_place", {"x": theirs})
    assert output.numpy().tolist() == [[10, 12, 14, 16]]
    assert theirs.tolist() == A.tolist()


async def test_bfloat16_are_bit_patterns(ask: Ask) -> None:
    bits = torch.tensor([[1, -2, 0.5, 3]], dtype=torch.bfloat16).view(torch.uint16).numpy()
    [output] = await ask("bf16", {"x": Tensor.from_numpy(bits, DataType.BF16)})
    assert output.datatype is DataType.BF16
    assert output.numpy().tolist() == bits.tolist()


@pytest.mark.contract("N-09")
@pytest.mark.parametrize(
    ("model", "name", "kind"),
    [("whole_exported", "x", torch.bfloat16), ("whole_compiled", "ARGS[0]", torch.float32)],
)
async def test_a_package_with_a_dynamic_first_dimension_runs_once_for_a_batch(
    opened: Callable[..., Opened], model: str, name: str, kind: torch.dtype
) -> None:
    """Of three rows of ones each gets the sum; also as bit patterns of BF16."""
    array = torch.ones(1, 4, dtype=kind)
    bits = array.view(torch.uint16).numpy() if kind is torch.bfloat16 else array.numpy()
    datatype = DataType.BF16 if kind is torch.bfloat16 else DataType.FP32
    given = InferenceRequest("m", inputs={name: Tensor.from_numpy(bits, datatype)})
    async with opened(model) as instance:
        outcomes = await instance.backend.execute([given, given, given])
        found = [outcome.outputs["RESULT[0]"] for outcome in outcomes]
    three = torch.full((1, 4), 3, dtype=kind).view(torch.uint8).numpy().tobytes()
    assert [(each.datatype, each.numpy().tobytes()) for each in found] == [(datatype, three)] * 3


@pytest.mark.contract("B-08")
@pytest.mark.parametrize(
    ("model", "why"),
    [
        ("wrong_type", "expects datatype TYPE_INT64 for output 'y', model provides TYPE_FP32"),
        ("listed", r"output must be of type Tensor, List\[str\] or Tuple"),
    ],
)
async def test_results_that_are_not_declared_so_are_said(ask: Ask, model: str, why: str) -> None:
    with pytest.raises(InternalError, match=why):
        await ask(model, {"x": A})


async def test_error_of_a_run_has_no_stack_of_native_code(ask: Ask) -> None:
    with pytest.raises(InternalError, match="PyTorch execute failure: ") as caught:
        await ask("by_name", {"left": A, "right": B[:, :3]})
    assert "Exception raised from" not in caught.value.message


@pytest.mark.contract("B-12", "C-05")
async def test_module_in_python_has_its_weights(ask: Ask) -> None:
    y, total = await ask("in_python", {"x": np.tile(B, (2, 1))})
    assert y.numpy().tolist() == [[10, 20]] * 2
    assert total.numpy().tolist() == [[10]] * 2


def _pages_of(file: Path) -> tuple[int, int]:
    """How much of a file this process has mapped and touched, and how much of that is its own."""
    text = Path("/proc/self/smaps").read_text("utf-8")
    found = re.findall(rf"{re.escape(str(file))}\n(.*?)VmFlags", text, re.DOTALL)
    sizes = [
        re.search(rf"^{name}: +(\d+)", part, re.MULTILINE) for part in found for name in _SIZES
    ]
    kib = [int(size[1]) for size in sizes if size]
    return sum(kib[::2]), sum(kib[1::2])


_SIZES = ("Rss", "Anonymous")


@pytest.mark.contract("B-09")
@pytest.mark.parametrize("model", ["wide_shared", "wide_exported"])
async def test_weights_that_instances_share_lie_in_the_file(
    opened: Callable[..., Opened], repository: Path, ask: Ask, model: str
) -> None:
    """Twice, since a run that writes to a buffer must not be seen by the next that maps the file.

    4 MiB of weights and 16 KiB of a buffer, which is written to, so becomes the process's own.
    """
    x = np.linspace(-1, 1, 2048, dtype=np.float32).reshape(2, 1024)
    expected, _ = await ask("wide", {"x": x})
    (file,) = (repository / model / "1").iterdir()
    for _ in range(2):
        async with opened(model) as instance:
            [response] = [each async for each in instance.infer({"x": x})]
            mapped, own = _pages_of(file)
        np.testing.assert_allclose(response.outputs["y"].numpy(), expected.numpy(), atol=1e-5)
        assert response.outputs["runs"].numpy().tolist() == [[1], [1]]
        assert mapped >= 4096
        assert own <= 64


_REFUSED = {
    "two_dictionaries": "Multiple inputs of kind DictType were detected. Only a single input of",
    "number": "An input of type 'IntType' was detected in the model. Only a single input of type",
    "too_many": "configuration expects 2 inputs, model provides 1",
    "damaged": "failed to load model 'damaged': ",
    "truncated": "failed to load model 'truncated': ",
    "pickled": "would run code while it is read; save it with torch.jit.save or torch.export.save,"
    " or only its state_dict, or start the server with --allow-unsafe-models=true",
    "weights_only": "has no model but weights; put the module that they belong to into model.py",
    "hostile": "failed to load model 'hostile': ",
    "hostile_archive": "would run code while it is read",
    "hostile_package": "would run code while it is read",
    "climbing": "/climbing/1/model.pt is refused: its member 'm/../../hacked' is no path",
    "bomb": "/bomb/1/model.pt is refused: it unpacks to more than 100 times its",
    "without_file": "/without_file/1/model.pt' for model instance 'without_file'",
}


@pytest.mark.contract("B-08", "B-12", "SEC-15")
@pytest.mark.parametrize("model", _REFUSED)
async def test_what_cannot_be_served_is_refused_with_the_reason(
    opened: Callable[..., Opened], repository: Path, model: str
) -> None:
    with pytest.raises(ModelLoadError) as caught:
        async with opened(model):
            pass
    assert _REFUSED[model] in caught.value.message
    assert "Exception raised from" not in caught.value.message
    assert not (repository / "hacked").exists()


@pytest.mark.parametrize("setting", ["allow-unsafe-models", "allow-pickle"])
async def test_pickled_module_is_served_where_the_operator_allows_it(
    opened: Callable[..., Opened], setting: str
) -> None:
    async with opened("pickled", **{setting: "true"}) as instance:
        [response] = [each async for each in instance.infer({"x": A})]
    assert response.outputs["y"].numpy().tolist() == A.tolist()


@pytest.mark.contract("B-09")
async def test_switches_are_those_of_the_process(opened: Callable[..., Opened]) -> None:
    try:
        async with opened("switches") as instance:
            [response] = [each async for each in instance.infer({"x": A})]
            assert not torch.backends.cudnn.enabled
        assert response.outputs["y"].numpy().tolist() == [[3, False, False]]
    finally:
        torch.backends.cudnn.enabled = True


@pytest.mark.contract("B-11")
async def test_model_that_chooses_its_devices_is_not_moved(repository: Path) -> None:
    """Also to where it was saved; its inputs are the host's."""
    config = read_pbtxt(repository / "by_name" / "config.pbtxt")
    version = repository / "by_name" / "1"
    async with running(PyTorchBackend, config, version, kind="KIND_MODEL", device_id=7) as instance:
        [response] = [each async for each in instance.infer({"left": A, "right": B})]
    assert response.outputs["sum"].numpy().tolist() == (A + B).tolist()


async def test_gpu_that_is_not_there_is_said(repository: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    config = read_pbtxt(repository / "by_name" / "config.pbtxt")
    version = repository / "by_name" / "1"
    with pytest.raises(ModelLoadError, match=r"KIND_GPU, and PyTorch .* finds no GPU here"):
        async with running(PyTorchBackend, config, version, kind="KIND_GPU"):
            pass
