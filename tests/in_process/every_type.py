"""The model that `upstream_calls.py` loads: an optional input and an output of every datatype."""

# mypy: ignore-errors
# A file as users write them, against modules that are there only when it runs.
from __future__ import annotations

import json
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Gives back what it gets, as `KIND_output` for `KIND_input`, and the request's parameters."""

    @staticmethod
    def auto_complete_config(config):
        names = [kind.removeprefix("TYPE_").lower() for kind in pb_utils.TRITON_STRING_TO_NUMPY]
        for kind, name in zip(pb_utils.TRITON_STRING_TO_NUMPY, names, strict=True):
            tensor = {"data_type": kind, "dims": [-1, -1]}
            config.add_input({"name": f"{name}_input", "optional": True, **tensor})
            config.add_output({"name": f"{name}_output", **tensor})
        config.add_output({"name": "parameters", "data_type": "TYPE_STRING", "dims": [1]})
        config.set_max_batch_size(0)
        told = config.as_dict()["parameters"]["decoupled"]["string_value"]
        config.set_model_transaction_policy({"decoupled": told == "True"})
        return config

    def initialize(self, args):
        policy = json.loads(args["model_config"]).get("model_transaction_policy", {})
        self._decoupled = policy.get("decoupled", False)

    def execute(self, requests):
        if self._decoupled:
            for request in requests:
                self._stream(request)
            return None
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        outputs = [
            pb_utils.Tensor(tensor.name().replace("input", "output"), tensor.as_numpy())
            for tensor in request.inputs()
        ]
        parameters = np.array([request.parameters()], dtype=np.object_)
        return pb_utils.InferenceResponse([*outputs, pb_utils.Tensor("parameters", parameters)])

    def _stream(self, request):
        """As many answers as the parameter says, or until the request is cancelled."""
        sender = request.get_response_sender()
        for _ in range(json.loads(request.parameters() or "{}").get("answers", 1)):
            if request.is_cancelled():
                break
            sender.send(self._answer(request))
            time.sleep(0.001)
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
