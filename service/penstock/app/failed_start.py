"""The last lines of a failed start: which models failed, and why, each in one line."""

from __future__ import annotations

import os
from collections.abc import Mapping

from penstock.app.preflight import StartError
from penstock.core.errors import InferenceError
from penstock.models.loading.load_graph import code_name
from penstock.settings import RepositorySettings

_PLACES = "\n\nAt:\n"
"""Between the message and the traceback of an exception in a Python model."""


def failed_start(
    failures: Mapping[str, InferenceError], settings: RepositorySettings
) -> StartError:
    """The error that ends the start, whose text is what the server prints last.

    The failure of a single model that `--load-model` names is Triton's line, with its error's code.
    Otherwise Triton's line precedes one for each model.
    """
    if len(failures) == 1 and not settings.loads_everything:
        (error,) = failures.values()
        return StartError(f"creating server: {code_name(error)} - {one_line(error.message)}")
    found = sorted(failures.items())
    rows = [f"{_folder(name, settings)}: {_reason(name, error)}" for name, error in found]
    head = "creating server: Internal - failed to load all models"
    return StartError(_as_given("\n".join([head, *rows]), settings))


def one_line(message: str) -> str:
    """A message without line breaks; of a traceback only the innermost place is kept."""
    text, _, places = message.partition(_PLACES)
    place, _, rest = places.strip().partition("\n")
    closing = ";" if rest.rstrip().endswith(";") else ""
    joined = " ".join(text.split())
    return f"{joined} (at {place.strip(' ;')}){closing}" if place else joined


def _as_given(text: str, settings: RepositorySettings) -> str:
    """The text with files that were given as arguments by their own paths, not those of links."""
    for file in settings.files:
        for name, source in file.links.items():
            for path in settings.paths:
                text = text.replace(os.path.join(path, file.name, name), str(source))
    return text


def _folder(name: str, settings: RepositorySettings) -> str:
    """The model's folder, of the first repository that has one; else its name."""
    if name in {file.name for file in settings.files}:
        return f"model '{name}'"
    folders = (os.path.join(path, name) for path in settings.paths)
    return next((folder for folder in folders if os.path.isdir(folder)), name)


def _reason(name: str, error: InferenceError) -> str:
    begin = f"load failed for model '{name}': "
    if error.message.startswith(begin):  # what follows names the version's own code
        return one_line(error.message.removeprefix(begin))
    return f"{code_name(error)}: {one_line(str(error.__cause__ or error))}"
