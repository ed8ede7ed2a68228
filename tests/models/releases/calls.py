"""Calls of a server with aliases of the models `old` and `new`."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.grpc as grpcclient

from harness.serving import Served


class Releases:
    """A server with models `old` and `new`, each of which answers with its own number."""

    def __init__(self, served: Served, repository: Path) -> None:
        self.served = served
        self.repository = repository

    def ask(self, path: str = "", body: Any = None, method: str = "GET") -> Any:
        """What a call of the aliases' paths answers; its status where it is refused."""
        url = f"http://{self.served.http}/v2/repository/aliases{path}"
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(urllib.request.Request(url, data, method=method)) as answer:
                text = answer.read()
                return json.loads(text) if text else answer.status
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)["error"]

    def set(self, old: float, new: float, **more: Any) -> Any:
        targets = [{"model": "old", "weight": old}, {"model": "new", "weight": new}]
        return self.ask("/alias", {"targets": targets, **more}, "POST")


def answer(
    client: grpcclient.InferenceServerClient, model: str = "alias", x: float = 0, **options: Any
) -> int:
    """The number of the model that has answered, which the answer's parameter names, too."""
    tensor = grpcclient.InferInput("X", [1, 1], "FP32")
    tensor.set_data_from_numpy(np.array([[x]], np.float32))
    result = client.infer(model, [tensor], **options)
    response = result.get_response()
    assert response.model_name == model
    number = int(result.as_numpy("Y")[0, 0])
    if model == "alias":
        assert response.parameters["penstock_target"].string_param == {1: "old", 2: "new"}[number]
    return number
