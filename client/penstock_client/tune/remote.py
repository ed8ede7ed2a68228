"""Variants in a server that runs already: they are loaded by configurations of load requests."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf import text_format

from penstock.protocol import grpc_service_pb2 as pb
from penstock_client.perf.errors import Status
from penstock_client.perf.wire.asking import NoAnswerError, RefusedError, ask_grpc
from penstock_client.perf.wire.endpoint import Endpoint
from penstock_client.reading.address import Address
from penstock_client.tune.composition import Composition, read_composition, steps
from penstock_client.tune.control_calls import SECONDS, SERVICE, ControlCalls, as_json
from penstock_client.tune.errors import ServerGoneError, TuneError, VariantError
from penstock_client.tune.load.measured_server import MeasuredServer
from penstock_client.tune.model_files import ModelFiles
from penstock_client.tune.options import Plan, Remote


@dataclass(frozen=True, slots=True)
class RemoteServer:
    """A server of another owner, with explicit model control."""

    remote: Remote
    load_seconds: float

    @property
    def pid(self) -> int:
        """None of its processes is known."""
        return 0

    @property
    def memory_without_model(self) -> int:
        """None of its memory can be seen from here."""
        return 0

    @property
    def metrics(self) -> Address:
        """The address of its metrics page."""
        return self.remote.metrics

    def memory(self) -> int | None:
        """None of its memory can be seen from here."""
        return None

    def endpoint(self, name: str) -> Endpoint:
        """The endpoint of `grpc` or `http`."""
        return self.remote.grpc if name == "grpc" else self.remote.http

    def load(self, model: str, config: str = "") -> None:
        """Load a model, with a configuration in JSON instead of its own where one is given."""
        self._calls.load(model, config)

    def config(self, model: str) -> dict[str, Any]:
        """A model's configuration as it is now; raises `VariantError` or `ServerGoneError`."""
        return as_json(self._calls.config(model))

    def files(self, model: str) -> ModelFiles:
        """A model as its repository has it, which is loaded for that."""
        self.load(model)
        return ModelFiles(
            model, Path(), str(text_format.MessageToString(self._calls.config(model)))
        )

    def check(self) -> None:
        """Raises `ServerGoneError` if it does not answer."""
        message = pb.ServerLiveRequest().SerializeToString()
        try:
            ask_grpc(self.remote.grpc, f"{SERVICE}ServerLive", message, {}, SECONDS)
        except RefusedError:
            return  # an answer, too
        except NoAnswerError as error:
            name = self.remote.grpc.authority
            raise ServerGoneError(f"no answer over gRPC from {name}: {error}") from error

    @property
    def _calls(self) -> ControlCalls:
        return ControlCalls(self.remote.grpc, self.check, self.load_seconds)


class RemoteLaunch:
    """Loads variants into one server, and in the end what it had before."""

    def __init__(self, composition: Composition, server: RemoteServer) -> None:
        self._composition = composition
        self._server = server
        # Configurations of models that variants have changed, by name, as they were.
        self._originals: dict[str, dict[str, Any]] = {}

    @contextmanager
    def loaded(self, changes: Mapping[str, Any]) -> Iterator[MeasuredServer]:
        """The server with a variant; raises `VariantError` or `ServerGoneError`."""
        for files, own in self._composition.divided(changes):
            if not own:
                self._restore(files.name)
                continue
            if files.name not in self._originals:
                self._originals[files.name] = self._server.config(files.name)
            self._server.load(files.name, files.config_json(own))
        yield self._server

    def restore(self) -> None:
        """Load all models as they were; raises `VariantError` or `ServerGoneError`."""
        for files in self._composition.models:
            self._restore(files.name)

    def _restore(self, name: str) -> None:
        if (original := self._originals.get(name)) is None:
            return
        self._server.load(name)
        # A server may take a model whose files have not changed for one that it need not load.
        if self._server.config(name) != original:
            self._server.load(name, json.dumps(original))
        del self._originals[name]


def read_remote(plan: Plan, server: RemoteServer) -> Composition:
    """The models of a plan as a server has them; raises `TuneError`.

    Where their repository can be read, the best configuration keeps what is written there.
    """
    try:
        found = _composition(plan, server)
    except (VariantError, ServerGoneError) as error:
        text = f"model '{plan.model}' cannot be measured as it is: {error}"
        raise TuneError(text, Status.UNREACHABLE) from error
    if not plan.repositories:
        return found
    local = read_composition(plan.repositories, plan.model, list(found.parts), with_steps=False)
    texts = {each.name: each.text for each in local.models}
    return Composition(
        _with_text(found.main, texts), {n: _with_text(f, texts) for n, f in found.parts.items()}
    )


def _with_text(files: ModelFiles, texts: Mapping[str, str]) -> ModelFiles:
    return ModelFiles(files.name, files.path, texts[files.name])


def _composition(plan: Plan, server: RemoteServer) -> Composition:
    main = server.files(plan.model)
    names = [*plan.parts, *(() if plan.values else steps(main, server.files))]
    return Composition(main, {name: server.files(name) for name in names if name != main.name})
