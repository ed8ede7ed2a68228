"""Asks another model for the passage that fits a question, and writes the prompt."""

import numpy as np
import triton_python_backend_utils as pb_utils
from opentelemetry import trace

tracer = trace.get_tracer("retrieve")


class TritonPythonModel:
    def execute(self, requests):
        return [self.respond(request) for request in requests]

    def respond(self, request):
        question = pb_utils.get_input_tensor_by_name(request, "QUESTION").as_numpy()[0]
        embedding = pb_utils.get_input_tensor_by_name(request, "EMBEDDING")
        call = pb_utils.InferenceRequest(
            model_name="passages",
            requested_output_names=["PASSAGE"],
            inputs=[embedding],
            trace=request.trace(),
        )
        found = call.exec()
        if found.has_error():
            return pb_utils.InferenceResponse(error=found.error())
        with tracer.start_as_current_span("write prompt") as span:
            passage = pb_utils.get_output_tensor_by_name(found, "PASSAGE").as_numpy()[0]
            prompt = passage + b" " + question
            span.set_attribute("prompt.bytes", len(prompt))
        tensor = pb_utils.Tensor("PROMPT", np.array([prompt], dtype=np.object_))
        return pb_utils.InferenceResponse([tensor])
