"""`AudioReader`: makes a row of an input of a WAV file, at the rate that the model wants."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from penstock.backend import (
    Array,
    ConfigError,
    DataType,
    InvalidRequestError,
    ModelConfig,
    ModelLoadError,
)
from penstock_backends.tensor_models.check import misfit
from penstock_backends.tensor_models.graph import GraphTensor
from penstock_backends.tensor_models.parameter_fields import ParameterFields, fields_of
from penstock_backends.tensor_models.resampling import half_window, resampled, resampled_length
from penstock_backends.tensor_models.wav import Wav, read_wav

AUDIO: Final = "penstock.audio"

_LAYOUTS: Final = ("T", "CT", "TC")
_RESAMPLE: Final = ("sinc", "linear", "none")
_FIELDS: Final = "input rate channels layout scale datatype resample pad cut max_seconds".split()
_DATATYPES: Final = (
    DataType.FP16,
    DataType.FP32,
    DataType.FP64,
    DataType.BF16,
    DataType.INT16,
    DataType.INT32,
)

_MOST_RATE: Final = 768_000
_MOST_CHANNELS: Final = 64
_SECONDS: Final = 600.0


@dataclass(frozen=True, slots=True)
class AudioSettings:
    """An object of `penstock.audio`."""

    input: str
    rate: int
    channels: int
    layout: str
    scale: float | None
    datatype: DataType | None
    resample: str
    pad: bool
    cut: bool
    max_seconds: float

    @classmethod
    def all_of(cls, config: ModelConfig) -> list[AudioSettings]:
        """The audio of a model; raises `ConfigError`."""
        return [cls._from_fields(fields) for fields in fields_of(config, AUDIO)]

    @classmethod
    def _from_fields(cls, fields: ParameterFields) -> AudioSettings:
        fields.check_known(_FIELDS)
        rate = fields.whole("rate", _MOST_RATE)
        if rate is None:
            raise ConfigError(f"parameter '{AUDIO}' needs the field 'rate', in Hz")
        channels = fields.whole("channels", _MOST_CHANNELS) or 1
        layout = fields.choice("layout", _LAYOUTS) or ("T" if channels == 1 else "CT")
        if layout == "T" and channels > 1:
            raise fields.refused("layout", "CT or TC, for more than one channel")
        return cls(
            input=fields.text("input"),
            rate=rate,
            channels=channels,
            layout=layout,
            scale=fields.number("scale"),
            datatype=fields.datatype("datatype", _DATATYPES),
            resample=fields.choice("resample", _RESAMPLE) or "sinc",
            pad=fields.flag("pad", False),
            cut=fields.flag("cut", False),
            max_seconds=fields.number("max_seconds", positive=True) or _SECONDS,
        )

    @property
    def rank(self) -> int:
        """The number of dimensions of what a file holds."""
        return len(self.layout)

    def reader(self, tensor: GraphTensor) -> AudioReader:
        """The reader of audio for this input of the graph; raises `ModelLoadError`."""
        return AudioReader(self, tensor)


class AudioReader:
    """Reads WAV files for an input of a graph; for several threads.

    Where the graph has a fixed length, silence follows what is shorter.
    """

    def __init__(self, settings: AudioSettings, tensor: GraphTensor) -> None:
        self.tensor = tensor
        self.pads = settings.pad
        self._settings = settings
        if (settings.datatype or tensor.datatype) is not tensor.datatype:
            raise self._misfit("its datatype is another")
        layout = settings.layout
        self.has_rows = len(tensor.dims) == len(layout) + 1
        if not self.has_rows and len(tensor.dims) != len(layout):
            raise self._misfit(f"layout {layout} has {len(layout)} dimensions")
        dims = dict(zip(layout, tensor.dims[-len(layout) :], strict=True))
        if dims.get("C", settings.channels) not in (settings.channels, -1):
            raise self._misfit(f"the audio has channels: {settings.channels}")
        if tensor.datatype not in _DATATYPES:
            raise self._misfit("samples are floats, or integers of 16 or 32 bits")
        self._length = max(dims["T"], 0)
        whole = tensor.datatype.numpy.kind == "i"
        full = 2.0 ** (8 * tensor.datatype.numpy.itemsize - 1) if whole else 1.0
        self._scale = settings.scale if settings.scale is not None else full

    def of_request(self) -> Callable[[bytes], Array]:
        """A function that reads each file of a request; raises `InvalidRequestError`."""
        most = int(self._settings.max_seconds * self._settings.rate)
        return partial(self._read, _SampleBudget(self.tensor.name, max(most, self._length)))

    def _read(self, budget: _SampleBudget, content: bytes) -> Array:
        wav = self._checked(read_wav(content, self.tensor.name))
        budget.take(resampled_length(len(wav), wav.rate, self._settings.rate))
        with np.errstate(over="ignore", invalid="ignore"):  # of what is refused then
            values = self._at_rate(self._mixed(wav), wav.rate)
        if not np.isfinite(values).all():
            raise self._refused("holds samples that are not finite")
        if self._length:
            values = values[:, : self._length]
            values = np.pad(values, ((0, 0), (0, self._length - values.shape[1])))
        return self._row(values)

    def _checked(self, wav: Wav) -> Wav:
        """As much of the file as the model reads."""
        rate, length = self._settings.rate, self._length
        if wav.rate != rate and self._settings.resample == "none":
            raise self._refused(f"is of {wav.rate} Hz, and the model takes {rate} Hz only")
        made = resampled_length(len(wav), wav.rate, rate)
        if not length or made <= length:
            return wav
        if not self._settings.cut:
            raise self._refused(
                f"is too long: {made} samples of {rate} Hz, and the model takes {length}"
            )
        return wav.first(resampled_length(length, rate, wav.rate) + half_window(wav.rate, rate))

    def _mixed(self, wav: Wav) -> Array:
        """The samples, [channels, samples]."""
        wanted = self._settings.channels
        if wav.channels == wanted:
            return wav.samples().T
        if wanted == 1:
            mixed: Array = wav.samples().mean(1, np.float32)
            return mixed[np.newaxis]
        if wav.channels == 1:
            return np.repeat(wav.samples().T, wanted, axis=0)
        raise self._refused(f"has {wav.channels} channels, and the model takes {wanted}")

    def _at_rate(self, signal: Array, rate: int) -> Array:
        wanted, linear = self._settings.rate, self._settings.resample == "linear"
        if rate == wanted:
            return signal
        return np.stack([resampled(one, rate, wanted, linear=linear) for one in signal])

    def _row(self, values: Array) -> Array:
        """Samples, [channels, samples], in the layout and the datatype of the graph."""
        if self._settings.layout == "T":
            values = values[0]
        elif self._settings.layout == "TC":
            values = values.T
        return self.tensor.cast(np.ascontiguousarray(values) * np.float32(self._scale))

    def _refused(self, complaint: str) -> InvalidRequestError:
        return InvalidRequestError(f"input '{self.tensor.name}' {complaint}")

    def _misfit(self, why: str) -> ModelLoadError:
        return misfit(AUDIO, why, self.tensor)


class _SampleBudget:
    """The samples that all audio of one request may have together. For several threads."""

    def __init__(self, name: str, most: int) -> None:
        self._name = name
        self._most = self._left = most
        self._lock = threading.Lock()

    def take(self, samples: int) -> None:
        with self._lock:
            self._left -= samples
            if self._left < 0:
                raise InvalidRequestError(
                    f"input '{self._name}' holds audio of more than {self._most} samples together"
                )
