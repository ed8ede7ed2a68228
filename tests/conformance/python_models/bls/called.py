"""The code of Python models that are called by others."""

from __future__ import annotations

NEGATE = """
    import json
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def execute(self, requests):
            return [self.respond(request) for request in requests]

        def respond(self, request):
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            if x.size and x[0] == 13:
                error = pb_utils.TritonError("unlucky", pb_utils.TritonError.INVALID_ARG)
                return pb_utils.InferenceResponse(error=error)
            seen = json.dumps([request.request_id(), request.correlation_id(), request.flags(),
                               request.timeout(), json.loads(request.parameters())])
            y = pb_utils.Tensor("Y", -x)
            return pb_utils.InferenceResponse([y], parameters={"seen": seen})
"""

# Two instances that can only answer together.
MEETING = """
    import os
    import time
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def initialize(self, args):
            self.directory = args["model_repository"]
            self.name = args["model_instance_name"]

        def execute(self, requests):
            here = os.path.join(self.directory, self.name + ".here")
            open(here, "w").close()
            while sum(n.endswith(".here") for n in os.listdir(self.directory)) < 2:
                time.sleep(0.002)
            return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", r.inputs()[0].as_numpy())])
                    for r in requests]
"""
