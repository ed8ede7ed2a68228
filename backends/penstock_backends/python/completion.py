"""A process that asks a model for its `auto_complete_config`, and ends."""

from __future__ import annotations

import json
import socket
from typing import Any

from penstock.hosting.parent import die_with_parent
from penstock_backends.python.api import install_module
from penstock_backends.python.traceback_text import failure
from penstock_backends.python.worker import complete_config


def run(descriptor: int, _: int, __: int) -> None:
    """Read the question from the socket, answer on it."""
    die_with_parent()
    with socket.socket(fileno=descriptor) as connection:
        connection.set_inheritable(False)
        with connection.makefile("rb") as questions:
            header = json.load(questions)
        connection.sendall(json.dumps(_answer(header)).encode())


def _answer(header: dict[str, Any]) -> tuple[str, Any]:
    install_module()
    try:
        return "config", complete_config(header)
    except Exception as error:  # a model may raise anything
        return "error", failure(error)
