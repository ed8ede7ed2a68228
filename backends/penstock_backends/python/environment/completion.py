"""Entry point of the one-shot process that runs a model's `auto_complete_config`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from penstock.core.errors import InternalError
from penstock.model import Model
from penstock_backends.python.environment.one_shot import OneShotCall
from penstock_backends.python.model_code import locate_code
from penstock_backends.python.pb_utils.config import ModelConfig
from penstock_backends.python.pb_utils.modules import install_modules
from penstock_backends.python.process.asyncio_config import completed_config
from penstock_backends.python.process.author_code import load_class
from penstock_backends.python.process.traceback_text import failure, printable


def run(descriptor: int, parent: int, _: int) -> None:
    """Read the argument from the socket, send the result; `parent` is the server's process id."""
    call = OneShotCall(descriptor, parent)
    install_modules()
    try:
        call.send_result(_complete_config(call.argument))
    except BaseException as error:  # a model may raise anything
        code, text = failure(error)
        call.send_error(code, printable(text))


def _complete_config(argument: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration, completed by the model's `auto_complete_config` (contract AC-09)."""
    config: dict[str, Any] = argument["config"]
    cls = load_class(locate_code(config, argument["version_path"], argument["settings"]))
    if issubclass(cls, Model):
        return completed_config(cls, config)
    if not hasattr(cls, "auto_complete_config"):
        return config
    completed = cls.auto_complete_config(ModelConfig(json.dumps(config)))
    if not isinstance(completed, ModelConfig):
        raise InternalError(
            f"auto_complete_config function in model '{config['name']}' must return a valid"
            " pb.ModelConfig object."
        )
    result: dict[str, Any] = completed.as_dict()
    return result
