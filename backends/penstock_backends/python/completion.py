"""A process that asks a model for its `auto_complete_config`, and ends."""

from __future__ import annotations

from penstock_backends.python.api import install_module
from penstock_backends.python.asking import Asked
from penstock_backends.python.replies import printable
from penstock_backends.python.traceback_text import failure
from penstock_backends.python.worker import complete_config


def run(descriptor: int, parent: int, _: int) -> None:
    """Read the question from the socket, answer on it; `parent` is the server's process."""
    asked = Asked(descriptor, parent)
    install_module()
    try:
        asked.answer(complete_config(asked.question))
    except BaseException as error:  # a model may raise anything
        code, text = failure(error)
        asked.refuse(code, printable(text))
