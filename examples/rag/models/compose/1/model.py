"""Writes the prompt: the passage that the cross-encoder found best, and the question behind it."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.respond(request) for request in requests]

    def respond(self, request):
        question, passages, scores = (
            pb_utils.get_input_tensor_by_name(request, name).as_numpy()
            for name in ("QUESTION", "PASSAGES", "SCORES")
        )
        best = scores.ravel().argmax()
        passage = passages.ravel()[best]
        arrays = {
            "PROMPT": np.array([passage + b" " + question.ravel()[0]], object),
            "PASSAGE": np.array([passage], object),
            "SCORE": scores.ravel()[[best]],
        }
        tensors = [pb_utils.Tensor(name, array) for name, array in arrays.items()]
        return pb_utils.InferenceResponse(tensors)
