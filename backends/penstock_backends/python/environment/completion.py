"""A process that asks a model for its `auto_complete_config`, and ends."""

from __future__ import annotations

from penstock_backends.python.environment.one_shot import Asked
from penstock_backends.python.pb_utils.api import install_module
from penstock_backends.python.process.replies import printable
from penstock_backends.python.process.traceback_text import failure
from penstock_backends.python.process.worker import complete_config


def run(descriptor: int, parent: int, _: int) -> None:
    """Read the question from the socket, answer on it; `parent` is the server's process."""
    asked = Asked(descriptor, parent)
    install_module()
    try:
        asked.answer(complete_config(asked.question))
    except BaseException as error:  # a model may raise anything
        code, text = failure(error)
        asked.refuse(code, printable(text))
