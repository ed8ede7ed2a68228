"""gRPC calls to the server that measures variants: load a model, read its configuration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from google.protobuf.json_format import MessageToDict

from penstock.protocol import grpc_service_pb2 as pb
from penstock.protocol.model_config_pb2 import ModelConfig
from penstock_client.perf.wire.asking import NoAnswerError, RefusedError, ask_grpc
from penstock_client.perf.wire.endpoint import Endpoint
from penstock_client.tune.errors import VariantError

SERVICE = "/inference.GRPCInferenceService/"
SECONDS = 30.0
"""Seconds for an answer, but of a load."""


@dataclass(frozen=True, slots=True)
class ControlCalls:
    """Calls to one server; refusals raise `VariantError`.

    `check` raises the error for a server that is gone; without an answer it is asked first.
    """

    endpoint: Endpoint
    check: Callable[[], None]
    load_seconds: float

    def load(self, model: str, config: str = "") -> None:
        """Load a model, with a configuration in JSON instead of its own where one is given."""
        request = pb.RepositoryModelLoadRequest(model_name=model)
        if config:
            request.parameters["config"].string_param = config
        self._ask("RepositoryModelLoad", request, self.load_seconds)

    def config(self, model: str) -> ModelConfig:
        """A model's configuration, completed by the server."""
        answer = self._ask("ModelConfig", pb.ModelConfigRequest(name=model), SECONDS)
        config: ModelConfig = pb.ModelConfigResponse.FromString(answer).config
        return config

    def _ask(self, method: str, request: Any, seconds: float) -> bytes:
        message = request.SerializeToString()
        try:
            return ask_grpc(self.endpoint, SERVICE + method, message, {}, seconds)
        except RefusedError as error:
            raise VariantError(str(error)) from error
        except NoAnswerError as error:
            self.check()
            raise VariantError(f"{method}: {error}") from error


def as_json(config: ModelConfig) -> dict[str, Any]:
    """A configuration in the JSON form of protobuf, with the names of `config.pbtxt`."""
    found: dict[str, Any] = MessageToDict(config, preserving_proto_field_name=True)
    return found
