"""WAV files as inputs of tensor models, through one instance of an engine."""

from __future__ import annotations

import io
import json
import struct
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from onnx import TensorProto

from backends.tensor_models import graphs
from backends.tensor_models.test_images import answers, refusal, request, rows
from harness.examples import examples
from penstock.core.config import ModelConfig
from penstock.core.errors import ConfigError, InvalidRequestError, ModelLoadError
from penstock.core.tensor import DataType
from penstock.testing import running
from penstock_backends.onnxruntime import OnnxRuntimeBackend
from penstock_backends.tensor_models import GraphTensor
from penstock_backends.tensor_models.audio_reader import AudioSettings

PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE


def wav(
    samples: np.ndarray, rate: int = 16_000, code: int = PCM, bits: int = 0, extra: bytes = b""
) -> bytes:
    """A file of samples, [samples] or [samples, channels]; `extra` are chunks before them."""
    channels = 1 if samples.ndim == 1 else samples.shape[1]
    bits = bits or samples.itemsize * 8
    data = samples.tobytes()
    block = channels * bits // 8
    head = struct.pack("<HHIIHH", code, channels, rate, 0, block, bits)
    if code == EXTENSIBLE:
        head += struct.pack(
            "<HHIH14s", 22, bits, 0, PCM, b"\0\0\0\0\x10\0\x80\0\0\xaa\0\x38\x9b\x71"
        )
    chunks = b"fmt " + struct.pack("<I", len(head)) + head + extra
    chunks += b"data" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks


def sine(hertz: float, rate: int, seconds: float = 0.5) -> np.ndarray:
    places = np.arange(int(rate * seconds)) / rate
    return (0.5 * np.sin(2 * np.pi * hertz * places)).astype(np.float32)


def save_audio(path: Path, shape: graphs.Shape = ("n", "t"), kind: int = TensorProto.FLOAT) -> Path:
    """y = x, samples"""
    return graphs.save_identity(path, kind, shape)


def config(rows: int = 8, **audio: Any) -> ModelConfig:
    given = json.dumps({"input": "x", "rate": 16_000, **audio})
    return ModelConfig(
        name="sounds",
        backend="onnxruntime",
        max_batch_size=rows,
        parameters=graphs.parameters(penstock__audio=given),
    )


# -- samples ---------------------------------------------------------------------------------------


def packed(levels: np.ndarray) -> np.ndarray:
    """Integers of three bytes."""
    return levels.astype("<i4").view(np.uint8).reshape(-1, 4)[:, :3].copy()


LEVELS = np.array([0, 1, -1, 100, -128, 127])
SAMPLES = {
    "8 bits": (wav((LEVELS + 128).astype(np.uint8)), LEVELS / 128),
    "16 bits": (wav((LEVELS * 256).astype("<i2")), LEVELS / 128),
    "24 bits": (wav(packed(LEVELS * 65_536).reshape(-1), bits=24), LEVELS / 128),
    "32 bits": (wav((LEVELS * 2**24).astype("<i4")), LEVELS / 128),
    "floats": (wav((LEVELS / 100).astype("<f4"), code=FLOAT), LEVELS / 100),
    "doubles": (wav((LEVELS / 100).astype("<f8"), code=FLOAT), LEVELS / 100),
    "extensible": (wav((LEVELS * 256).astype("<i2"), code=EXTENSIBLE), LEVELS / 128),
}


@pytest.mark.parametrize("kind", SAMPLES)
async def test_samples_of_all_kinds_become_floats(version: Path, kind: str) -> None:
    save_audio(version / "model.onnx")
    file, expected = SAMPLES[kind]
    found = await rows(version, config(), file)
    assert found.dtype == np.float32
    assert_array_equal(found, expected.astype(np.float32)[np.newaxis])


async def test_a_file_that_python_writes_is_read(version: Path) -> None:
    save_audio(version / "model.onnx")
    samples = np.random.default_rng(0).integers(-32_768, 32_767, 999, np.int16)
    file = io.BytesIO()
    with wave.open(file, "wb") as written:
        written.setparams((1, 2, 16_000, 0, "NONE", ""))
        written.writeframes(samples.tobytes())
    assert_array_equal((await rows(version, config(), file.getvalue()))[0], samples / 32_768)


async def test_other_chunks_are_passed_over_and_an_unknown_length_is_the_rest(
    version: Path,
) -> None:
    save_audio(version / "model.onnx")
    file = wav((LEVELS * 256).astype("<i2"), extra=b"LIST" + struct.pack("<I", 3) + b"abc\0")
    at = file.index(b"data") + 4
    for length in (file[at : at + 4], b"\0" * 4, b"\xff" * 4):
        found = await rows(version, config(), file[:at] + length + file[at + 4 :])
        assert_array_equal(found[0], LEVELS / 128)


async def test_channels_are_mixed_or_repeated(version: Path) -> None:
    save_audio(version / "model.onnx")
    both = np.array([[100, 300], [-200, 200]], "<i2")
    assert_array_equal((await rows(version, config(), wav(both)))[0], np.array([200, 0]) / 32_768)
    save_audio(version / "model.onnx", ("n", 2, "t"))
    given = config(channels=2)
    assert_array_equal((await rows(version, given, wav(both)))[0], both.T / 32_768)
    (alone,) = await rows(version, given, wav(both[:, 0].copy()))
    assert_array_equal(alone, np.array([[100, -200]] * 2) / 32_768)


async def test_three_channels_are_not_two(version: Path) -> None:
    save_audio(version / "model.onnx", ("n", "t", 2))
    text = await refusal(version, config(channels=2, layout="TC"), wav(np.zeros((4, 3), "<i2")))
    assert text == "input 'x' has 3 channels, and the model takes 2"


@pytest.mark.parametrize(
    ("kind", "fields", "expected"),
    [
        (TensorProto.INT16, {}, LEVELS * 256),
        (TensorProto.INT32, {}, LEVELS * 2**24),
        (TensorProto.FLOAT, {"scale": 32_768}, LEVELS * 256),
        (TensorProto.FLOAT16, {}, LEVELS / 128),
    ],
)
async def test_samples_are_of_the_datatype_of_the_graph(
    version: Path, kind: int, fields: dict[str, Any], expected: np.ndarray
) -> None:
    save_audio(version / "model.onnx", ("n", "t", 1), kind)
    found = await rows(version, config(layout="TC", **fields), SAMPLES["16 bits"][0])
    assert_array_equal(found[0, :, 0], expected)


# -- rates -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [8_000, 11_025, 22_050, 44_100, 44_101, 48_000, 96_000])
async def test_a_tone_of_another_rate_is_the_same_tone(version: Path, rate: int) -> None:
    save_audio(version / "model.onnx")
    (found,) = await rows(version, config(), wav(sine(1_000, rate), rate, FLOAT))
    expected = sine(1_000, 16_000, len(found) / 16_000)
    assert abs(len(found) - 8_000) <= 2
    assert_allclose(found[200:-200], expected[200:-200], atol=5e-5)


async def test_what_the_lower_rate_cannot_hold_is_left_out(version: Path) -> None:
    save_audio(version / "model.onnx")
    (found,) = await rows(version, config(), wav(sine(9_000, 48_000), 48_000, FLOAT))
    assert np.abs(found[200:-200]).max() < 1e-4


async def test_straight_lines_are_a_choice(version: Path) -> None:
    save_audio(version / "model.onnx")
    signal = np.array([0, 1, 0, -1], np.float32)
    (found,) = await rows(version, config(resample="linear"), wav(signal, 8_000, FLOAT))
    assert_array_equal(found, [0, 0.5, 1, 0.5, 0, -0.5, -1, -1])


async def test_other_rates_may_be_refused(version: Path) -> None:
    save_audio(version / "model.onnx")
    text = await refusal(version, config(resample="none"), wav(sine(100, 8_000), 8_000, FLOAT))
    assert text == "input 'x' is of 8000 Hz, and the model takes 16000 Hz only"


# -- lengths ---------------------------------------------------------------------------------------


async def test_requests_of_different_lengths_run_apart(version: Path) -> None:
    save_audio(version / "model.onnx")
    lengths = [5, 9, 5]
    files = [wav(np.full(length, at, np.float32), code=FLOAT) for at, length in enumerate(lengths)]
    outcomes = await answers(version, config(), *map(request, files))
    for at, (outcome, length) in enumerate(zip(outcomes, lengths, strict=True)):
        assert graphs.tensor(outcome, "y").numpy().tolist() == [[at] * length]


async def test_or_are_padded_to_the_longest(version: Path) -> None:
    save_audio(version / "model.onnx")
    files = [wav(np.ones(length, np.float32), code=FLOAT) for length in (2, 4, 3)]
    first, last = await answers(version, config(pad=True), request(*files[:2]), request(files[2]))
    assert graphs.tensor(first, "y").numpy().tolist() == [[1, 1, 0, 0], [1] * 4]
    assert graphs.tensor(last, "y").numpy().tolist() == [[1, 1, 1, 0]]


async def test_a_graph_of_a_fixed_length_gets_silence_behind(version: Path) -> None:
    save_audio(version / "model.onnx", ("n", 4))
    (found,) = await rows(version, config(), wav(np.ones(3, np.float32), code=FLOAT))
    assert found.tolist() == [1, 1, 1, 0]
    longer = wav(np.arange(6, dtype=np.float32), code=FLOAT)
    text = await refusal(version, config(), longer)
    assert text == "input 'x' is too long: 6 samples of 16000 Hz, and the model takes 4"
    assert (await rows(version, config(cut=True), longer)).tolist() == [[0, 1, 2, 3]]


async def test_what_is_cut_is_not_resampled_first(version: Path) -> None:
    """Of a thousand seconds, one is read."""
    save_audio(version / "model.onnx", ("n", 16_000))
    file = wav(np.full(1_000_000, 64, np.uint8), rate=1_000)
    (found,) = await rows(version, config(cut=True), file)
    assert found.shape == (16_000,)


async def test_audio_of_a_request_is_bounded_together(version: Path) -> None:
    save_audio(version / "model.onnx")
    file = wav(np.zeros(100, np.float32), code=FLOAT)
    assert (await rows(version, config(max_seconds=0.0125), file, file)).shape == (2, 100)
    text = await refusal(version, config(max_seconds=0.0125), file, file, file)
    assert text.startswith("input 'x' holds audio of more than 200 samples together")
    text = await refusal(version, config(), wav(np.zeros(601_000, np.uint8), rate=1_000))
    assert text == "input 'x' holds audio of more than 9600000 samples together"


async def test_without_a_batch_dimension_a_file_is_a_request(version: Path) -> None:
    save_audio(version / "model.onnx", ("t",))
    async with running(OnnxRuntimeBackend, config(rows=0), version) as instance:
        assert instance.config.input == (graphs.tensor_in("x", DataType.BYTES, 1),)
        (outcome,) = await instance.backend.execute([request(SAMPLES["8 bits"][0], shape=(1,))])
    assert_array_equal(graphs.tensor(outcome, "y").numpy(), LEVELS / 128)


# -- what is refused -------------------------------------------------------------------------------

GOOD = SAMPLES["16 bits"][0]


@pytest.mark.parametrize(
    ("file", "text"),
    [
        (b"", "it is cut off"),
        (b"OggS" + GOOD[4:], "it does not begin with RIFF and WAVE"),
        (GOOD[:8] + b"AVI " + GOOD[12:], "it does not begin with RIFF and WAVE"),
        (b"hello", "it does not begin with RIFF and WAVE"),
        (b"RIFF", "it is cut off"),
        (GOOD[:30], "it is cut off"),
        (GOOD[:36], "it is cut off"),
        (GOOD[:-2], "it says that 12 bytes of samples follow, and 10 do"),
        (GOOD[:12] + GOOD[36:], "it is cut off"),
        (wav(np.zeros(4, np.uint8), code=7), "its samples are mu-law of 8 bits; PCM of 8, 16"),
        (wav(np.zeros(4, np.uint8), code=0x55), "its samples are MP3 of 8 bits"),
        (wav(np.zeros(4, "<f4"), code=99), "its samples are format 99 of 32 bits"),
        (wav(np.zeros(4, "<i8")), "its samples are PCM of 64 bits"),
        (wav(np.zeros((4, 0), "<i2")), "its samples are PCM of 16 bits"),
        (wav(np.zeros(4, "<i2"), rate=0), "its rate is 0 Hz"),
        (wav(np.zeros(4, "<i2"), rate=999), "its rate is 999 Hz"),
        (wav(np.zeros(4, "<i2"), rate=2**31), "its rate is 2147483648 Hz"),
    ],
)
async def test_what_is_no_wav_file_is_refused_with_the_reason(
    version: Path, file: bytes, text: str
) -> None:
    save_audio(version / "model.onnx")
    refused = await refusal(version, config(), file)
    assert refused.startswith(f"input 'x' does not hold a WAV file: {text}")


@given(st.sampled_from([*SAMPLES]), st.data())
@settings(max_examples=examples(300))
def test_damaged_files_are_read_or_refused(kind: str, data: st.DataObject) -> None:
    content = bytearray(SAMPLES[kind][0])
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    (parsed,) = AudioSettings.all_of(config(max_seconds=1))
    reader = parsed.reader(GraphTensor("x", DataType.FP32, (-1, -1)))
    end = data.draw(st.sampled_from((len(content), 20, 40, 50)))
    try:
        row = reader.of_request()(bytes(content[:end]))
    except InvalidRequestError:
        return
    assert row.dtype == np.float32
    assert len(row) <= 16_000
    assert np.isfinite(row).all()


async def test_samples_that_are_no_numbers_are_refused(version: Path) -> None:
    save_audio(version / "model.onnx")
    for value in (np.nan, np.inf):
        text = await refusal(version, config(), wav(np.array([0, value], "<f4"), code=FLOAT))
        assert text == "input 'x' holds samples that are not finite"


async def test_one_bad_file_refuses_its_own_request_only(version: Path) -> None:
    save_audio(version / "model.onnx")
    good, bad = await answers(version, config(), request(GOOD), request(GOOD, b"?"))
    assert graphs.tensor(good, "y").shape == (1, len(LEVELS))
    assert isinstance(bad, InvalidRequestError)
    why = "it does not begin with RIFF and WAVE"
    assert bad.message == f"input 'x' does not hold a WAV file: {why} (row 1)"


@pytest.mark.parametrize(
    ("parameter", "text"),
    [
        ('{"input": "x"}', "parameter 'penstock.audio' needs the field 'rate', in Hz"),
        ('{"input": "x", "rate": 16000.5}', "'rate' must be a whole number from 1 to 768000"),
        ('{"input": "x", "rate": 8000, "chanels": 1}', "did you mean 'channels'?"),
        ('{"input": "x", "rate": 8000, "layout": "T", "channels": 2}', "'layout' must be CT or TC"),
        ('{"input": "x", "rate": 8000, "datatype": "INT8"}', "'datatype' must be FP16/FP32"),
        ('{"input": "x", "rate": 8000, "resample": "best"}', "must be sinc/linear/none"),
        ('{"input": "x", "rate": 8000, "max_seconds": 0}', "'max_seconds' must be a positive"),
        ('{"input": "y", "rate": 8000}', "'y' takes files, so it must be an input of TYPE_STRING"),
    ],
)
def test_parameters_that_say_nothing_clear_are_refused(parameter: str, text: str) -> None:
    given = graphs.identity_config(
        DataType.BYTES, 1, parameters=graphs.parameters(penstock__audio=parameter)
    )
    with pytest.raises(ConfigError) as refused:
        OnnxRuntimeBackend.check_config(given)
    assert text in refused.value.message


@pytest.mark.parametrize(
    ("shape", "kind", "fields", "text"),
    [
        (("n", 1, "t"), TensorProto.FLOAT, {}, "layout T has 1 dimensions"),
        (("n", 1, "t"), TensorProto.FLOAT, {"channels": 2}, "the audio has channels: 2"),
        (("n", "t"), TensorProto.FLOAT, {"datatype": "INT16"}, "its datatype is another"),
        (("n", "t"), TensorProto.UINT8, {}, "samples are floats, or integers of 16 or 32 bits"),
    ],
)
async def test_audio_that_does_not_fit_the_graph_is_refused_at_load(
    version: Path, shape: graphs.Shape, kind: int, fields: dict[str, Any], text: str
) -> None:
    save_audio(version / "model.onnx", shape, kind)
    with pytest.raises(ModelLoadError, match=f"parameter 'penstock.audio': {text}, and the model"):
        await answers(version, config(**fields))
