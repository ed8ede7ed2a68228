"""Notes when requests pass the steps to their tokens; Python loads this by its name.

A server that has this folder in `PYTHONPATH`, and a file's prefix in `FIRST_TOKEN_NOTES`, notes in
all of its processes, and writes them when a process ends: pairs of a step's name and a time.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

_NOTES: list[tuple[str, float]] = []


def _note(step: str) -> None:
    _NOTES.append((step, time.perf_counter()))


def _around(owner: Any, name: str, before: str = "", after: str = "") -> None:
    """Note each call of a function, before or after it."""
    function = getattr(owner, name)

    def noting(*args: Any, **named: Any) -> Any:
        if before:
            _note(before)
        result = function(*args, **named)
        if after:
            _note(after)
        return result

    setattr(owner, name, noting)


def _stream_writer(module: ModuleType) -> None:
    _around(module.StreamWriter, "accept", before="front read")


def _in_flight(module: ModuleType) -> None:
    _around(module.InFlight, "send", after="front sent")
    pass_on = module.InFlight._pass_on

    def noting(self: Any, number: int, response: Any) -> None:
        inference = self._requests.get(number)
        first = inference is not None and not inference.stream.begun
        if first:
            _note("front has the token")
        if response.final:
            _note("front has the answer")
        pass_on(self, number, response)
        if first:
            _note("front wrote")

    module.InFlight._pass_on = noting


def _connection(module: ModuleType) -> None:
    _around(module.ConnectionProtocol, "buffer_updated", before="http read")
    _around(module.ConnectionProtocol, "_write", after="http written")


def _host(module: ModuleType) -> None:
    _around(module.Host, "_execute_batch", before="process read")
    _around(module.Host, "_exchange", before="process read")


def _response_sender(module: ModuleType) -> None:
    send = module.ExchangeSender._send

    def noting(self: Any, response: Any) -> None:
        send(self, response)
        if response.final:
            _note("answer sent")

    module.ExchangeSender._send = noting


def _asgi(module: ModuleType) -> None:
    _around(module, "send_json", before="answer built")


def _endpoint(name: str) -> Callable[[ModuleType], None]:
    return lambda module: _around(getattr(module, name), "__call__", before="handler begun")


def _json_body(module: ModuleType) -> None:
    _around(module.BodyReader, "check", after="body checked")


def _engine_generator(module: ModuleType) -> None:
    _around(module.EngineGenerator, "generate", "prompt made", "queued")


def _backend(module: ModuleType) -> None:
    _around(module.OpenVinoGenAiBackend, "generate", "request begun", "tokenized")


def _pipeline(module: ModuleType) -> None:
    _around(module.GenAiPipeline, "add", after="added")
    _around(module.GenAiPipeline, "step", "step begun", "step ended")


def _delivery(module: ModuleType) -> None:
    push = module.Delivery.push

    def noting(self: Any) -> None:
        begun = self.stream.begun
        push(self)
        if self.stream.begun and not begun:
            _note("token sent")

    module.Delivery.push = noting


_KIT = "penstock_backends.openai_kit"
_PATCHES: dict[str, Callable[[ModuleType], None]] = {
    "penstock.gateway.connections.connection": _connection,
    "penstock.hosting.link.response_sender": _response_sender,
    f"{_KIT}.asgi": _asgi,
    f"{_KIT}.chat": _endpoint("ChatEndpoint"),
    f"{_KIT}.completions": _endpoint("CompletionEndpoint"),
    f"{_KIT}.json_body": _json_body,
    f"{_KIT}.engine_generator": _engine_generator,
    "penstock.rpc.stream_writer": _stream_writer,
    "penstock.hosting.parent.in_flight": _in_flight,
    "penstock.hosting.worker.host": _host,
    "penstock_backends.openvino_genai.backend": _backend,
    "penstock_backends.openvino_genai.pipeline": _pipeline,
    "penstock_backends.language_model.delivery": _delivery,
}


class _Finder(MetaPathFinder):
    """Finds the modules above as Python does, and patches them once they are loaded."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        patch = _PATCHES.get(fullname)
        spec = None if patch is None else PathFinder.find_spec(fullname, path, target)
        if patch is None or spec is None or spec.loader is None:
            return None
        load = spec.loader.exec_module

        def loading(module: ModuleType) -> None:
            load(module)
            patch(module)

        spec.loader.exec_module = loading  # type: ignore[method-assign]
        return spec


def _write() -> None:
    if _NOTES:
        Path(f"{os.environ['FIRST_TOKEN_NOTES']}{os.getpid()}").write_text(json.dumps(_NOTES))


if "FIRST_TOKEN_NOTES" in os.environ:
    sys.meta_path.insert(0, _Finder())
    atexit.register(_write)
