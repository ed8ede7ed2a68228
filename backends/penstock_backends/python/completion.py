"""A process that asks a model for its `auto_complete_config`, and ends."""

from __future__ import annotations

import json
import os
import socket
from typing import Any

from penstock.hosting.parent import die_with_parent
from penstock_backends.python.api import install_module
from penstock_backends.python.replies import printable
from penstock_backends.python.traceback_text import failure
from penstock_backends.python.worker import complete_config


def run(descriptor: int, parent: int, _: int) -> None:
    """Read the question from the socket, answer on it; `parent` is the server's process."""
    die_with_parent()
    if os.getppid() != parent:
        return  # the server has ended already
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
        code, text = failure(error)
        return "error", (code, printable(text))
