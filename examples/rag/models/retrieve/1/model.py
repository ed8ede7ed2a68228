"""Finds passages for a question in a small index; calls the encoders of pictures and of texts.

Of a picture, its vector is added to that of the question, and the words nearest to it stand behind
the question for the reranker, which reads texts only.
"""

import asyncio
import json
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        folder = Path(args["model_repository"])
        self.passages = (folder / "passages.txt").read_text("utf-8").splitlines()
        self.words = (folder / "words.txt").read_text("utf-8").splitlines()
        parameters = json.loads(args["model_config"])["parameters"]
        self.candidates = int(parameters["candidates"]["string_value"])
        self.index = None
        self.building = asyncio.Lock()

    async def execute(self, requests):
        return await asyncio.gather(*(self.respond(request) for request in requests))

    async def respond(self, request):
        wanted = pb_utils.get_input_tensor_by_name(request, "EMBEDDING").as_numpy().ravel()
        question = pb_utils.get_input_tensor_by_name(request, "QUESTION").as_numpy().ravel()[0]
        image = pb_utils.get_input_tensor_by_name(request, "IMAGE")
        try:
            passages, words = await self.vectors(request)
            if image is not None:
                seen = await self.call("picture", "pixels", image.as_numpy(), request)
                wanted = wanted + seen.ravel()
                question += b" " + self.words[int(np.argmax(words @ seen.ravel()))].encode()
        except pb_utils.TritonModelException as error:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error)))
        best = np.argsort(-(passages @ wanted), kind="stable")[: self.candidates]
        found = np.array([[self.passages[at].encode()] for at in best], object)
        queries = np.full(found.shape, question, object)
        tensors = [pb_utils.Tensor("QUERIES", queries), pb_utils.Tensor("PASSAGES", found)]
        return pb_utils.InferenceResponse(tensors)

    async def vectors(self, request):
        """Those of the passages and of the words, embedded for the first question of all."""
        async with self.building:
            if self.index is None:
                texts = [*self.passages, *self.words]
                array = np.array([[text.encode()] for text in texts], object)
                parts = [array[at : at + 32] for at in range(0, len(array), 32)]
                calls = (self.call("minilm", "TEXT", part, request) for part in parts)
                made = np.concatenate(await asyncio.gather(*calls))
                self.index = np.split(made, [len(self.passages)])
        return self.index

    async def call(self, model, name, array, request):
        call = pb_utils.InferenceRequest(
            model_name=model,
            requested_output_names=["EMBEDDING"],
            inputs=[pb_utils.Tensor(name, array.reshape(-1, 1))],
            trace=request.trace(),
        )
        answer = await call.async_exec()
        if answer.has_error():
            raise pb_utils.TritonModelException(answer.error().message())
        return pb_utils.get_output_tensor_by_name(answer, "EMBEDDING").as_numpy()
