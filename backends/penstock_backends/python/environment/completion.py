"""Entry point of the one-shot process that runs a model's `auto_complete_config`."""

from __future__ import annotations

from penstock_backends.python.environment.one_shot import OneShotCall
from penstock_backends.python.pb_utils.api import install_module
from penstock_backends.python.process.replies import printable
from penstock_backends.python.process.traceback_text import failure
from penstock_backends.python.process.worker import complete_config


def run(descriptor: int, parent: int, _: int) -> None:
    """Read the argument from the socket, send the result; `parent` is the server's process id."""
    call = OneShotCall(descriptor, parent)
    install_module()
    try:
        call.send_result(complete_config(call.argument))
    except BaseException as error:  # a model may raise anything
        code, text = failure(error)
        call.send_error(code, printable(text))
