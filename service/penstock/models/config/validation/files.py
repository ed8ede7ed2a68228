"""Rules about files that a configuration names: they lie in the model's folder."""

from __future__ import annotations

from collections.abc import Iterator
from os.path import isabs, normpath
from typing import Final

from penstock.core.config import ModelConfig
from penstock.core.errors import shortened
from penstock.core.file_names import wrong_name

INITIAL_STATES: Final = "initial_state"
"""The folder of the files with initial states, in the model's folder."""

WARMUP: Final = "warmup"
"""The folder of the data files of warm-up samples, in the model's folder."""

_VERSION: Final = "1"
"""Stands for the folder of any version."""


def file_problems(config: ModelConfig) -> Iterator[str]:
    """No name leads out of the model's folder; links in it may, which an operator has made.

    A configuration may come from a client, and would have any file of the machine read.
    """
    for field, folder, name in _names(config):
        path = normpath(f"{folder}/{name}")
        if isabs(name) or path.split("/")[0] == ".." or "\0" in name:
            yield f"{field} '{name}' of model '{config.name}' must stay within the model directory"
        elif path != "." and (wrong := wrong_name(path)):
            yield f"{field} {shortened(name)!r} of model '{config.name}' is no path: {wrong}"


def _names(config: ModelConfig) -> Iterator[tuple[str, str, str]]:
    """Field, folder below the model's, and name of every file."""
    yield "default_model_filename", _VERSION, config.default_model_filename
    for filename in config.cc_model_filenames.values():
        yield "cc_model_filenames", _VERSION, filename
    for output in config.output:
        yield "label_filename", ".", output.label_filename
    for warmup in config.model_warmup:
        for tensor in warmup.inputs.values():
            yield "input_data_file", WARMUP, tensor.input_data_file or ""
    if config.sequence_batching is not None:
        for state in config.sequence_batching.state:
            for initial in state.initial_state:
                yield "data_file", INITIAL_STATES, initial.data_file or ""
