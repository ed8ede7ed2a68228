"""`FileInputs`: inputs of a graph for which clients send files, images or audio, a row of each."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from penstock.backend import (
    Array,
    ConfigError,
    DataType,
    InferenceRequest,
    InvalidRequestError,
    ModelConfig,
    Outcome,
    Tensor,
)
from penstock_backends.tensor_models.audio_reader import AudioSettings
from penstock_backends.tensor_models.autocomplete import written
from penstock_backends.tensor_models.check import unexpected
from penstock_backends.tensor_models.graph import Graph, GraphTensor
from penstock_backends.tensor_models.image_reader import ImageSettings
from penstock_backends.tensor_models.tensor_model import Answer
from penstock_backends.tensor_models.tokenizer import TOKENIZER


class FileReader(Protocol):
    """A reader that makes a row of an input of each file. For several threads."""

    tensor: GraphTensor
    has_rows: bool
    """Whether the first dimension of the graph's tensor is that of rows."""
    pads: bool
    """Whether rows are filled up, with zeros at their ends, to the longest of a batch."""

    def of_request(self) -> Callable[[bytes], Array]:
        """A function that reads each file of a request; raises `InvalidRequestError`."""
        ...


class FileSettings(Protocol):
    """How the files of an input are read, as a parameter of the model says it."""

    @property
    def input(self) -> str:
        """The name of the graph's input."""
        ...

    @property
    def datatype(self) -> DataType | None:
        """The datatype of what a file is made, where the parameter says it."""
        ...

    @property
    def rank(self) -> int:
        """The number of dimensions of what a file is made."""
        ...

    def reader(self, tensor: GraphTensor) -> FileReader:
        """The reader of files for this input of the graph; raises `ModelLoadError`."""
        ...


def _settings(config: ModelConfig) -> Sequence[FileSettings]:
    return [*ImageSettings.all_of(config), *AudioSettings.all_of(config)]


def check_files(config: ModelConfig) -> None:
    """Check the inputs that take files; raises `ConfigError`."""
    names = [each.input for each in _settings(config)]
    if names and config.parameter(TOKENIZER) is not None:
        raise ConfigError(f"model '{config.name}': a text encoder ('{TOKENIZER}') takes no files")
    for name in names:
        tensor = config.inputs_by_name.get(name)
        if names.count(name) > 1:
            raise ConfigError(f"model '{config.name}': input '{name}' is given files twice")
        if tensor is None or tensor.data_type is not DataType.BYTES or tensor.allow_ragged_batch:
            raise ConfigError(
                f"model '{config.name}': '{name}' takes files, so it must be an input of"
                " TYPE_STRING with dims: [ 1 ], and not ragged"
            )


def made_of_files(config: ModelConfig) -> dict[str, GraphTensor]:
    """The inputs that take files as a graph gets them, by name: for engines whose models do not say
    what they take.
    """
    rows = (-1,) if config.max_batch_size else ()
    return {
        each.input: GraphTensor(
            each.input, each.datatype or DataType.FP32, (*rows, *[-1] * each.rank)
        )
        for each in _settings(config)
    }


def takes_images_alone(config: ModelConfig) -> bool:
    """Whether images are all that a model takes."""
    images = [each.input for each in ImageSettings.all_of(config)]
    return len(images) == 1 and [tensor.name for tensor in config.input] == images


class FileInputs:
    """The inputs of a graph that take files; there may be none."""

    def __init__(self, config: ModelConfig, graph: Graph) -> None:
        known = graph.inputs | graph.defaults
        self._readers: dict[str, FileReader] = {}
        for each in _settings(config):
            if each.input not in known:
                raise unexpected(config, "input", each.input, known)
            self._readers[each.input] = each.reader(known[each.input])

    @property
    def have_rows(self) -> bool:
        """Whether a batch dimension of the graph is left beside those of a file."""
        return all(reader.has_rows for reader in self._readers.values())

    def declared(self, graph: Graph) -> Graph:
        """The graph as clients see it: these inputs have an element of `BYTES` for each row."""
        return _Declared(graph, self._readers) if self._readers else graph

    def before(self, model: Answer, threads: int) -> Answer:
        """`model`, for requests with files, of which as many are read at once as are `threads`."""
        return FileModel(model, self._readers, threads) if self._readers else model


class _Declared(Graph):
    def __init__(self, graph: Graph, readers: Mapping[str, FileReader]) -> None:
        self._graph = graph
        self.engine = graph.engine
        self.inputs = {n: _of_files(t, readers.get(n)) for n, t in graph.inputs.items()}
        self.defaults = {n: _of_files(t, readers.get(n)) for n, t in graph.defaults.items()}
        self.outputs = graph.outputs

    def run(self, feeds: Mapping[str, Array], names: Sequence[str]) -> list[Array]:
        return self._graph.run(feeds, names)


def _of_files(tensor: GraphTensor, reader: FileReader | None) -> GraphTensor:
    if reader is None:
        return tensor
    rows = tensor.dims[:1] if reader.has_rows else ()
    return GraphTensor(tensor.name, DataType.BYTES, (*rows, 1))


class FileModel:
    """Reads the files of all requests of a batch, and runs the model with what is in them.

    A request with a file that cannot be read fails alone. Requests whose rows differ in shape run
    one after another, unless they are padded.
    """

    def __init__(self, model: Answer, readers: Mapping[str, FileReader], threads: int) -> None:
        self._model = model
        self._readers = readers
        self._threads = ThreadPoolExecutor(threads, "files") if threads > 1 else None

    def close(self) -> None:
        """End the threads."""
        if self._threads is not None:
            self._threads.shutdown()

    def __call__(self, requests: Sequence[InferenceRequest]) -> list[Outcome]:
        """Answer every request, in order. Blocks."""
        readings = [_Reading(request, self._readers) for request in requests]
        files = [file for reading in readings for file in reading.files()]
        read = self._threads.map if self._threads is not None and len(files) > 1 else map
        for _ in read(_File.read, files):
            pass
        alike: dict[Hashable, list[_Reading]] = {}
        for reading in readings:
            if reading.is_valid():
                alike.setdefault(reading.shapes(), []).append(reading)
        for group in alike.values():
            for reading, outcome in zip(group, self._model(self._given(group)), strict=True):
                reading.outcome = outcome
        return [reading.outcome for reading in readings if reading.outcome is not None]

    def _given(self, group: Sequence[_Reading]) -> list[InferenceRequest]:
        """The requests of a group, with rows in place of files."""
        tensors: list[dict[str, Tensor]] = [{} for _ in group]
        for name in group[0].rows:
            reader = self._readers[name]
            rows = [reading.rows[name] for reading in group]
            shape = np.max([row.shape for own in rows for row in own], axis=0)
            for given, own in zip(tensors, rows, strict=True):
                array = _stacked(own, tuple(shape)) if reader.has_rows else own[0]
                given[name] = Tensor.from_numpy(array, reader.tensor.datatype)
        return [
            reading.request._replace(inputs={**reading.request.inputs, **given})
            for reading, given in zip(group, tensors, strict=True)
        ]


def _stacked(rows: Sequence[Array], shape: tuple[int, ...]) -> Array:
    """The rows in one array, filled up with zeros to `shape` where they are smaller."""
    if len(rows) == 1 and rows[0].shape == shape:
        return rows[0][np.newaxis]
    array = np.zeros((len(rows), *shape), rows[0].dtype)
    for place, row in zip(array, rows, strict=True):
        place[tuple(map(slice, row.shape))] = row
    return array


class _Reading:
    """A request while its files are read; `rows` are what they are made, by input.

    `outcome` is the first error, or the answer of the model.
    """

    def __init__(self, request: InferenceRequest, readers: Mapping[str, FileReader]) -> None:
        self.request = request
        self.rows: dict[str, list[Array]] = {}
        self.outcome: Outcome | None = None
        self._readers = readers

    def files(self) -> list[_File]:
        """All files, in elements of their inputs; an input that is missing is the model's error."""
        found: list[_File] = []
        for name in self._readers.keys() & self.request.inputs.keys():
            reader, tensor = self._readers[name], self.request.inputs[name]
            contents = tensor.elements() if tensor.datatype is DataType.BYTES else []
            if not contents or (len(contents) > 1 and not reader.has_rows):
                self.outcome = InvalidRequestError(f"input '{name}' must hold a file")
                return []
            rows = self.rows[name] = [_UNREAD] * len(contents)
            read = reader.of_request()
            found += [_File(self, rows, at, content, read) for at, content in enumerate(contents)]
        return found

    def is_valid(self) -> bool:
        """Whether all files were read, to rows that can be joined."""
        for name, rows in self.rows.items():
            shapes = sorted({row.shape for row in rows})
            if self.outcome is None and len(shapes) > 1 and not self._readers[name].pads:
                self.outcome = InvalidRequestError(
                    f"input '{name}' holds files that make rows of different shapes, such as "
                    f"{written(shapes[0])} and {written(shapes[1])}; send them one by one"
                )
        return self.outcome is None

    def shapes(self) -> Hashable:
        """The shapes of all rows, which are equal for requests that can be joined."""
        return frozenset(
            (name, () if self._readers[name].pads else rows[0].shape)
            for name, rows in self.rows.items()
        )


_UNREAD = np.empty(0)


@dataclass(frozen=True, slots=True)
class _File:
    reading: _Reading
    rows: list[Array]
    at: int
    content: bytes
    make_row: Callable[[bytes], Array]

    def read(self) -> None:
        """Put what is in the file in its place, unless another one of its request has failed."""
        if self.reading.outcome is not None:
            return
        try:
            self.rows[self.at] = self.make_row(self.content)
        except InvalidRequestError as error:
            where = f" (row {self.at})" if len(self.rows) > 1 else ""
            self.reading.outcome = InvalidRequestError(f"{error.message}{where}")
