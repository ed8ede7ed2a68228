"""Image files as inputs of tensor models, through one instance of an engine."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from onnx import TensorProto
from PIL import Image, ImageOps

from backends.tensor_models import graphs
from harness.examples import examples
from penstock.core.backend import Outcome
from penstock.core.config import ModelConfig
from penstock.core.errors import (
    BackendNotInstalledError,
    ConfigError,
    InvalidRequestError,
    ModelLoadError,
)
from penstock.core.tensor import DataType, Tensor
from penstock.testing import running
from penstock_backends.onnxruntime import OnnxRuntimeBackend
from penstock_backends.openvino import OpenVinoBackend
from penstock_backends.tensor_models import GraphTensor
from penstock_backends.tensor_models.image_reader import ImageSettings

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Those of ImageNet."""
KINDS: Mapping[int, DataType] = {
    TensorProto.FLOAT: DataType.FP32,
    TensorProto.FLOAT16: DataType.FP16,
    TensorProto.UINT8: DataType.UINT8,
    TensorProto.INT8: DataType.INT8,
}


def picture(width: int = 64, height: int = 48, mode: str = "RGB", seed: int = 0) -> Image.Image:
    """A smooth picture with some noise, as photographs are."""
    down, right = np.mgrid[0:height, 0:width]
    planes = np.stack([right * 3 + down, 255 - down * 4, right + down * 2], -1)
    noise = np.random.default_rng(seed).integers(0, 40, planes.shape)
    return Image.fromarray(((planes + noise) % 256).astype(np.uint8)).convert(mode)


def encoded(image: Image.Image, form: str = "PNG", **options: Any) -> bytes:
    file = BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def save_images(
    path: Path, shape: graphs.Shape = ("n", 3, 24, 32), kind: int = TensorProto.FLOAT
) -> Path:
    """y = x, images"""
    return graphs.save_identity(path, kind, shape)


def config(rows: int = 8, **image: Any) -> ModelConfig:
    """A model that takes images by the fields of `penstock.image`; the rest is completed."""
    given = json.dumps({"input": "x", **image})
    return ModelConfig(
        name="pictures",
        backend="onnxruntime",
        max_batch_size=rows,
        parameters=graphs.parameters(penstock__image=given),
    )


def request(*files: bytes, shape: Sequence[int] | None = None) -> Any:
    return graphs.request(x=Tensor.from_strings(files, shape or (len(files), 1)))


async def answers(version: Path, given: ModelConfig, *requests: Any) -> list[Outcome]:
    """What one batch of requests is answered."""
    async with running(OnnxRuntimeBackend, given, version) as instance:
        outcomes: list[Outcome] = await instance.backend.execute(requests)
        return outcomes


async def rows(version: Path, given: ModelConfig, *files: bytes) -> np.ndarray:
    (outcome,) = await answers(version, given, request(*files))
    return graphs.tensor(outcome, "y").numpy()


async def refusal(version: Path, given: ModelConfig, *files: bytes) -> str:
    (outcome,) = await answers(version, given, request(*files))
    assert isinstance(outcome, InvalidRequestError), outcome
    return outcome.message


def chw(image: Image.Image, mean: Any = 0, std: Any = 1, scale: float = 1 / 255) -> np.ndarray:
    """As Pillow has it, and numpy computes it."""
    levels = np.asarray(image).astype(np.float64) * scale
    values: np.ndarray = ((levels - mean) / std).astype(np.float32)
    return values.transpose(2, 0, 1)


# -- what becomes of an image ----------------------------------------------------------------------


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP"])
async def test_a_file_becomes_the_tensor_that_pillow_and_numpy_make(
    version: Path, form: str
) -> None:
    save_images(version / "model.onnx", ("n", 3, 24, 24))
    file = encoded(picture(), form)
    given = config(resize=30, crop=24, mean=MEAN, std=STD, resample="bicubic")
    resized = Image.open(BytesIO(file)).convert("RGB").resize((40, 30), Image.Resampling.BICUBIC)
    expected = chw(resized.crop((8, 3, 32, 27)), MEAN, STD)
    assert_array_equal(await rows(version, given, file), expected[np.newaxis])


async def test_the_graph_says_size_and_layout_and_colour(version: Path) -> None:
    save_images(version / "model.onnx", ("n", 24, 32, 1))
    expected = picture().convert("L").resize((32, 24), Image.Resampling.BILINEAR)
    found = await rows(version, config(), encoded(picture()))
    grey = (np.asarray(expected) / 255).astype(np.float32)
    assert_array_equal(found, grey[np.newaxis, :, :, np.newaxis])


async def test_the_shorter_side_is_resized_and_the_centre_is_what_the_graph_takes(
    version: Path,
) -> None:
    save_images(version / "model.onnx", ("n", 3, 20, 22))
    tall = picture(30, 71)
    resized = tall.resize((25, 25 * 71 // 30), Image.Resampling.BILINEAR)
    assert resized.size == (25, 59)
    expected = chw(resized.crop((2, 20, 24, 40)))
    assert_array_equal((await rows(version, config(resize=25), encoded(tall)))[0], expected)


async def test_what_a_crop_has_beyond_the_image_is_black(version: Path) -> None:
    save_images(version / "model.onnx", ("n", 3, 50, 70), TensorProto.UINT8)
    (found,) = await rows(version, config(crop=[70, 50]), encoded(picture()))
    assert_array_equal(found[:, 1:49, 3:67], np.asarray(picture()).transpose(2, 0, 1))
    found[:, 1:49, 3:67] = 0
    assert not found.any()


async def test_blue_may_come_first(version: Path) -> None:
    save_images(version / "model.onnx", ("n", 48, 64, 3))
    found = await rows(version, config(colour="BGR", mean=[1, 2, 3], scale=1), encoded(picture()))
    assert_array_equal(found[0], np.asarray(picture())[..., ::-1].astype(np.float32) - [1, 2, 3])


@pytest.mark.parametrize(
    ("kind", "fields", "made"),
    [
        (TensorProto.UINT8, {}, lambda pixels: pixels),
        (TensorProto.INT8, {"mean": 128}, lambda pixels: pixels.astype(int) - 128),
        (TensorProto.FLOAT16, {}, lambda pixels: (pixels / 255).astype(np.float16)),
    ],
)
async def test_values_are_of_the_datatype_of_the_graph(
    version: Path, kind: int, fields: dict[str, Any], made: Callable[[Any], Any]
) -> None:
    save_images(version / "model.onnx", ("n", 48, 64, 3), kind)
    found = await rows(version, config(**fields), encoded(picture()))
    assert found.dtype == KINDS[kind].numpy
    assert_array_equal(found[0], made(np.asarray(picture())))


async def test_another_engine_gets_the_same(version: Path) -> None:
    """Whose parameter would give the graph the dimensions of the configuration."""
    save_images(version / "model.onnx")
    given = config(mean=MEAN, std=STD)
    reshaped = graphs.parameters(RESHAPE_IO_LAYERS="YES")
    openvino = replace(
        given,
        parameters={**given.parameters, **reshaped},
        default_model_filename="model.onnx",
        input=(graphs.tensor_in("x", DataType.BYTES, 1),),
        output=(graphs.tensor_out("y", DataType.FP32, 3, 24, 32),),
    )
    file = encoded(picture(), "JPEG")
    async with running(OpenVinoBackend, openvino, version) as instance:
        (outcome,) = await instance.backend.execute([request(file, file)])
    expected = await rows(version, given, file, file)
    assert_array_equal(graphs.tensor(outcome, "y").numpy(), expected)


async def test_an_image_of_any_size_stays_as_it_is_where_the_graph_takes_it(version: Path) -> None:
    save_images(version / "model.onnx", ("n", 3, "h", "w"))
    assert_array_equal((await rows(version, config(), encoded(picture())))[0], chw(picture()))


async def test_one_side_may_be_given_and_the_other_be_in_proportion(version: Path) -> None:
    save_images(version / "model.onnx", ("n", 3, 24, "w"))
    found = await rows(version, config(), encoded(picture(100, 48)))
    assert found.shape == (1, 3, 24, 50)


async def test_without_a_batch_dimension_an_image_is_a_request(version: Path) -> None:
    save_images(version / "model.onnx", (48, 64, 3))
    async with running(OnnxRuntimeBackend, config(rows=0), version) as instance:
        assert instance.config.input == (graphs.tensor_in("x", DataType.BYTES, 1),)
        (outcome,) = await instance.backend.execute([request(encoded(picture()), shape=(1,))])
    expected = np.float32(np.asarray(picture()) / 255)
    assert_array_equal(graphs.tensor(outcome, "y").numpy(), expected)


async def test_without_batching_a_request_may_have_several(version: Path) -> None:
    save_images(version / "model.onnx", (2, 3, 24, 32))
    async with running(OnnxRuntimeBackend, config(rows=0), version) as instance:
        assert instance.config.input == (graphs.tensor_in("x", DataType.BYTES, 2, 1),)
        (outcome,) = await instance.backend.execute([request(*[encoded(picture())] * 2)])
    assert graphs.tensor(outcome, "y").shape == (2, 3, 24, 32)


# -- kinds of images -------------------------------------------------------------------------------


def paletted() -> Image.Image:
    return picture().convert("P", palette=Image.Palette.ADAPTIVE)


@pytest.mark.parametrize(
    "file",
    [
        encoded(picture(mode="CMYK"), "JPEG"),
        encoded(picture(mode="L"), "JPEG"),
        encoded(picture(mode="L")),
        encoded(picture(mode="1")),
        encoded(picture(mode="LA")),
        encoded(picture(mode="RGBA")),
        encoded(paletted()),
        encoded(paletted(), transparency=bytes([0, 128, 255])),
        encoded(picture(mode="RGBA"), "WEBP", lossless=True),
    ],
)
async def test_images_of_all_kinds_are_what_pillow_makes_rgb(version: Path, file: bytes) -> None:
    save_images(version / "model.onnx", ("n", 3, 48, 64))
    found = await rows(version, config(), file)
    image: Image.Image = Image.open(BytesIO(file))
    if image.mode == "P":
        image = image.convert("RGBA")  # or Pillow warns
    assert_array_equal(found[0], chw(image.convert("RGB")))


async def test_sixteen_bits_become_eight(version: Path) -> None:
    save_images(version / "model.onnx", ("n", 1, 16, 16), TensorProto.UINT8)
    levels = np.arange(256, dtype=np.uint16).reshape(16, 16) * 257
    found = await rows(version, config(), encoded(Image.fromarray(levels)))
    assert_array_equal(found[0, 0], levels >> 8)


@pytest.mark.parametrize("orientation", range(1, 9))
async def test_photographs_are_turned_upright(version: Path, orientation: int) -> None:
    save_images(version / "model.onnx", ("n", 3, "h", "w"))
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = encoded(picture(), "JPEG", exif=exif)
    with Image.open(BytesIO(file)) as stored:
        assert_array_equal(
            (await rows(version, config(), file))[0], chw(ImageOps.exif_transpose(stored))
        )
        assert_array_equal((await rows(version, config(upright=False), file))[0], chw(stored))


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
async def test_damaged_exif_turns_nothing(version: Path) -> None:
    save_images(version / "model.onnx", ("n", 3, 48, 64))
    file = encoded(picture(), "JPEG", exif=b"Exif\0\0MM\0*\xff\xff\xff\xff damaged")
    found = await rows(version, config(), file)
    assert_array_equal(found[0], chw(Image.open(BytesIO(file))))


@pytest.mark.parametrize("form", ["PNG", "WEBP"])
async def test_of_an_animation_the_first_picture_is_taken(version: Path, form: str) -> None:
    save_images(version / "model.onnx", ("n", 3, 48, 64))
    options = {"lossless": True} if form == "WEBP" else {}
    more = [picture(seed=1), picture(seed=2)]
    file = encoded(picture(), form, save_all=True, append_images=more, **options)
    assert Image.open(BytesIO(file)).n_frames == 3  # type: ignore[attr-defined]
    assert_array_equal((await rows(version, config(), file))[0], chw(picture()))


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "file",
    [
        b"",
        b"no image",
        encoded(picture())[:60],
        encoded(picture())[:3000],
        encoded(picture(), "JPEG")[:700],
        encoded(picture(), "GIF"),
        encoded(picture(), "TIFF"),
        encoded(picture(), "PPM"),
    ],
)
async def test_what_is_no_whole_image_of_the_formats_is_refused(version: Path, file: bytes) -> None:
    save_images(version / "model.onnx")
    text = await refusal(version, config(), file)
    assert text.startswith("input 'x' does not hold an image of the formats JPEG, PNG, WEBP: ")


@given(st.sampled_from(("JPEG", "PNG", "WEBP")), st.data())
@settings(max_examples=examples(150))
def test_damaged_files_are_read_or_refused(form: str, data: st.DataObject) -> None:
    content = bytearray(encoded(picture(16, 12), form))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    (parsed,) = ImageSettings.all_of(config(max_pixels=1 << 20))
    reader = parsed.reader(GraphTensor("x", DataType.FP32, (-1, 3, 24, 32)))
    with warnings.catch_warnings(action="ignore"):
        try:
            row = reader.of_request()(bytes(content))
        except InvalidRequestError:
            return
    assert row.shape == (3, 24, 32)
    assert row.dtype == np.float32


async def test_one_bad_image_refuses_its_own_request_only(version: Path) -> None:
    save_images(version / "model.onnx", ("n", 3, 48, 64))
    good = [encoded(picture(seed=seed)) for seed in range(4)]
    first, bad, last = await answers(
        version, config(), request(*good[:2]), request(good[3], b"?"), request(good[2])
    )
    assert_array_equal(graphs.tensor(first, "y").numpy()[1], chw(picture(seed=1)))
    assert_array_equal(graphs.tensor(last, "y").numpy()[0], chw(picture(seed=2)))
    assert isinstance(bad, InvalidRequestError)
    assert bad.message.endswith("cannot identify image file (row 1)")


async def test_bombs_are_refused_before_they_are_decoded(version: Path) -> None:
    save_images(version / "model.onnx")
    bomb = encoded(Image.new("1", (1 << 14, 1 << 13)))
    assert len(bomb) < 20_000
    text = await refusal(version, config(), bomb)
    assert "of 16384 x 8192 pixels" in text or "decompression bomb" in text


async def test_the_limit_of_pixels_is_a_field(version: Path) -> None:
    save_images(version / "model.onnx", ("n", 3, "h", "w"))
    file = encoded(picture(10, 9))
    assert (await rows(version, config(max_pixels=90), file)).shape == (1, 3, 9, 10)
    text = await refusal(version, config(max_pixels=89), file)
    assert text == "input 'x' holds an image of 10 x 9 pixels; at most 89 are allowed"


async def test_a_strip_that_resizing_makes_huge_is_refused(version: Path) -> None:
    save_images(version / "model.onnx", ("n", 3, 224, 224))
    text = await refusal(version, config(resize=224), encoded(Image.new("L", (20_000, 1))))
    assert "resizing makes 4480000 x 224; at most 89478485" in text


async def test_the_images_of_a_request_are_bounded_together(version: Path) -> None:
    save_images(version / "model.onnx", ("n", 3, 24, 32))
    file = encoded(picture(8, 8))
    given = config(max_pixels=3 * 24 * 32)
    assert (await rows(version, given, *[file] * 3)).shape == (3, 3, 24, 32)
    text = await refusal(version, given, *[file] * 4)
    assert text.startswith("input 'x' holds images of more than 2304 pixels, with others together")


async def test_rows_of_one_request_must_be_of_one_size(version: Path) -> None:
    save_images(version / "model.onnx", ("n", 3, "h", "w"))
    text = await refusal(version, config(), encoded(picture(4, 4)), encoded(picture(5, 4)))
    assert text == (
        "input 'x' holds files that make rows of different shapes, such as [3,4,4] and [3,4,5]; "
        "send them one by one"
    )


async def test_requests_of_different_sizes_run_apart(version: Path) -> None:
    save_images(version / "model.onnx", ("n", 3, "h", "w"))
    sizes = [(8, 6), (9, 6), (8, 6)]
    files = [encoded(picture(*size, seed=at)) for at, size in enumerate(sizes)]
    outcomes = await answers(version, config(), *map(request, files))
    for at, (outcome, size) in enumerate(zip(outcomes, sizes, strict=True)):
        assert_array_equal(graphs.tensor(outcome, "y").numpy()[0], chw(picture(*size, seed=at)))


async def test_tensors_of_numbers_and_no_files_at_all_are_refused(version: Path) -> None:
    save_images(version / "model.onnx")
    numbers = graphs.request(x=np.zeros((1, 3, 24, 32), np.float32))
    for one in (numbers, request(shape=(0, 1))):
        (outcome,) = await answers(version, config(), one)
        assert isinstance(outcome, InvalidRequestError)
        assert outcome.message == "input 'x' must hold a file"


# -- configurations --------------------------------------------------------------------------------


async def test_the_configuration_is_completed_for_files(version: Path) -> None:
    save_images(version / "model.onnx")
    async with running(OnnxRuntimeBackend, config(rows=0), version) as instance:
        completed = instance.config
    assert completed.max_batch_size == 4
    assert completed.input == (graphs.tensor_in("x", DataType.BYTES, 1),)
    assert completed.output == (graphs.tensor_out("y", DataType.FP32, 3, 24, 32),)


@pytest.mark.parametrize(
    ("parameter", "text"),
    [
        ("{", "parameter 'penstock.image' is not JSON"),
        ("[" * 100_000, "parameter 'penstock.image' is not JSON"),
        ("3", "must be an object such as"),
        ("[]", "must be an object such as"),
        ('{"resize": 3}', "needs the field 'input'"),
        ('{"input": "x", "resise": 3}', "has no field 'resise'; did you mean 'resize'?"),
        ('{"input": "x", "color": "RGB"}', "has no field 'color'; did you mean 'colour'?"),
        ('{"input": "x", "zzz": 3}', "has no field 'zzz'; its fields are: input, resize, crop"),
        ('{"input": ""}', "'input' must be a text, not \"\""),
        ('{"input": "x", "resize": 0}', "'resize' must be a positive whole number or [width"),
        ('{"input": "x", "resize": [0, 0]}', "'resize' must be a positive"),
        ('{"input": "x", "resize": "big"}', 'not "big"'),
        ('{"input": "x", "crop": [0, 3]}', "'crop' must be a positive"),
        ('{"input": "x", "mean": [1, "2"]}', "'mean' must be a number or a list of numbers"),
        ('{"input": "x", "mean": NaN}', "'mean' must be a number or a list of numbers"),
        ('{"input": "x", "std": 0}', "'std' must be numbers other than 0"),
        ('{"input": "x", "scale": true}', "'scale' must be a number, not true"),
        ('{"input": "x", "layout": "NCHW"}', "'layout' must be CHW/HWC/HW, not \"NCHW\""),
        ('{"input": "x", "datatype": "BOOL"}', "'datatype' must be UINT8/"),
        ('{"input": "x", "resample": "cubic"}', "nearest/box/bilinear/hamming/bicubic/lanczos"),
        ('{"input": "x", "upright": 1}', "'upright' must be true or false"),
        ('{"input": "x", "max_pixels": 1e9}', "'max_pixels' must be a whole number from 1 to"),
        ('[{"input": "x"}, {"input": "x"}]', "input 'x' is given files twice"),
        ('{"input": "y"}', "'y' takes files, so it must be an input of TYPE_STRING"),
    ],
)
def test_parameters_that_say_nothing_clear_are_refused(parameter: str, text: str) -> None:
    given = graphs.identity_config(
        DataType.BYTES, 1, parameters=graphs.parameters(penstock__image=parameter)
    )
    with pytest.raises(ConfigError) as refused:
        OnnxRuntimeBackend.check_config(given)
    assert text in refused.value.message


def test_a_declared_input_must_take_files() -> None:
    given = graphs.parameters(penstock__image='{"input": "x"}')
    numbers = graphs.identity_config(DataType.FP32, 3, 24, 32, parameters=given)
    with pytest.raises(ConfigError, match=r"must be an input of TYPE_STRING with dims: \[ 1 \]"):
        OnnxRuntimeBackend.check_config(numbers)
    texts = graphs.text_config(parameters=graphs.parameters(penstock__image='{"input": "TEXT"}'))
    with pytest.raises(ConfigError, match=r"a text encoder \('penstock.tokenizer'\) takes no file"):
        OnnxRuntimeBackend.check_config(texts)


@pytest.mark.parametrize(
    ("shape", "fields", "text"),
    [
        (("n", 3, 24, 32), {"crop": 24}, "images are made 24 x 24 (width x height), and the model"),
        (("n", 3, 24, 32), {"resize": [24, 32]}, "images are made 24 x 32 (width x height)"),
        (("n", 3, 24, "w"), {"resize": 25}, "images are made any x any (width x height)"),
        (("n", 4, 24, 32), {}, "colour RGB has channels: 3"),
        (("n", 3, 24, 32), {"colour": "L"}, "colour L has channels: 1"),
        (("n", 3, 24, 32), {"datatype": "FP16"}, "its datatype is another, and the model takes"),
        (("n", 3, 24, 32), {"mean": [1, 2]}, "mean has 2 numbers, for channels: 3"),
        (
            ("n", 9),
            {},
            "layout CHW has 3 dimensions, and the model takes TYPE_FP32 of shape [-1,9]",
        ),
    ],
)
async def test_images_that_do_not_fit_the_graph_are_refused_at_load(
    version: Path, shape: graphs.Shape, fields: dict[str, Any], text: str
) -> None:
    save_images(version / "model.onnx", shape)
    with pytest.raises(ModelLoadError) as refused:
        await answers(version, config(**fields))
    assert refused.value.message.startswith("parameter 'penstock.image': ")
    assert text in refused.value.message


async def test_without_pillow_the_line_that_installs_it_is_said(
    version: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_images(version / "model.onnx")
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(BackendNotInstalledError, match=r"pip install 'penstock\[images\]'"):
        await answers(version, config())


async def test_strings_are_no_pixels(version: Path) -> None:
    save_images(version / "model.onnx", ("n", 3, 24, 32), TensorProto.STRING)
    with pytest.raises(ModelLoadError, match="images are numbers, and the model takes TYPE_STRING"):
        await answers(version, config())


async def test_an_input_that_the_graph_does_not_have_is_named(version: Path) -> None:
    save_images(version / "model.onnx")
    given = replace(config(), parameters=graphs.parameters(penstock__image='{"input": "pixels"}'))
    with pytest.raises(ModelLoadError, match=r"input 'pixels' .* allowed inputs are: x"):
        await answers(version, given)
