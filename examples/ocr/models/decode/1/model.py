"""Makes texts of the characters of columns: of repeated ones the first counts, blanks do not."""

from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        file = Path(args["model_repository"]) / "characters.txt"
        self.characters = ["", *file.read_text("utf-8").split("\n"), " "]

    def execute(self, requests):
        return [self.respond(request) for request in requests]

    def respond(self, request):
        lines = pb_utils.get_input_tensor_by_name(request, "CHARACTERS").as_numpy()
        best, sure = lines.argmax(-1), lines.max(-1)
        kept = (best > 0) & (best != np.pad(best, ((0, 0), (1, 0)))[:, :-1])
        texts = [
            "".join(self.characters[one] for one in row[which]).encode()
            for row, which in zip(best, kept, strict=True)
        ]
        sums = np.where(kept, sure, 0).sum(1) / np.maximum(kept.sum(1), 1)
        tensors = {"TEXTS": np.array(texts, object), "CONFIDENCES": sums.astype(np.float32)}
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor(name, array) for name, array in tensors.items()]
        )
