"""A decoupled model that answers as often as it is told to, or without end."""

from __future__ import annotations

# Sends each element, then the final flag; negative ones as errors. Without elements it sends
# 64 KiB of a number, which goes from 0 to 9 and around, until it is cancelled; it leaves files
# after two of them, and at the end.
REPEAT = """
    import os
    import numpy as np
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def initialize(self, args):
            self.directory = args["model_repository"]

        def execute(self, requests):
            for request in requests:
                sender = request.get_response_sender()
                values = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
                for value in values if values.size else self.endless(sender):
                    if np.ndim(value) == 0 and value < 0:
                        error = pb_utils.TritonError("negative")
                        response = pb_utils.InferenceResponse(error=error)
                    else:
                        y = pb_utils.Tensor("Y", np.atleast_1d(value))
                        response = pb_utils.InferenceResponse([y])
                    sender.send(response)
                sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

        def endless(self, sender):
            number = 0
            while not sender.is_cancelled():
                yield np.full(1 << 14, number % 10, np.float32)
                number += 1
                if number == 2:
                    open(os.path.join(self.directory, "two"), "w").close()
            open(os.path.join(self.directory, "cancelled"), "w").close()
"""
