"""A chat with images by transformers: a prompt and images in, the text as it is generated out."""

import base64
import io
import json
from threading import Thread

import numpy as np
import torch
import triton_python_backend_utils as pb_utils
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor, TextIteratorStreamer

MAX_TOKENS = 256


class TritonPythonModel:
    def initialize(self, args):
        parameters = json.loads(args["model_config"])["parameters"]
        name = parameters["model"]["string_value"]
        device = "cuda" if torch.cuda.is_available() else "cpu"
        self.processor = AutoProcessor.from_pretrained(name)
        self.model = AutoModelForImageTextToText.from_pretrained(name, dtype="auto").to(device)

    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            try:
                self.answer(request, sender)
            except Exception as error:
                sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error))))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def answer(self, request, sender):
        """Send the pieces of the answer; a client that leaves ends it."""
        streamer = TextIteratorStreamer(
            self.processor.tokenizer, skip_prompt=True, skip_special_tokens=True
        )
        failures = []

        def generate(**inputs):
            try:
                self.model.generate(**inputs)
            except Exception as error:  # of this thread, which nobody would see
                failures.append(error)
                streamer.end()

        options = {
            **self.inputs(request),
            "max_new_tokens": self.max_tokens(request),
            "streamer": streamer,
            "stopping_criteria": [lambda ids, scores: self.stopped(request, ids)],
        }
        thread = Thread(target=generate, kwargs=options)
        thread.start()
        for piece in streamer:
            if piece:
                output = pb_utils.Tensor("text_output", np.array([piece], np.object_))
                sender.send(pb_utils.InferenceResponse([output]))
        thread.join()
        if failures:
            raise failures[0]

    def inputs(self, request):
        """The tokens of the prompt, and the pixels of its images, on the model's device."""
        images = [Image.open(io.BytesIO(base64.b64decode(file))) for file in self.files(request)]
        text = pb_utils.get_input_tensor_by_name(request, "text_input").as_numpy()[0].decode()
        content = [{"type": "image"} for _ in images] + [{"type": "text", "text": text}]
        prompt = self.processor.apply_chat_template(
            [{"role": "user", "content": content}], add_generation_prompt=True
        )
        inputs = self.processor(
            images=images or None, text=prompt, add_special_tokens=False, return_tensors="pt"
        )
        return inputs.to(self.model.device, self.model.dtype)

    def files(self, request):
        tensor = pb_utils.get_input_tensor_by_name(request, "image")
        return [] if tensor is None else tensor.as_numpy()

    def max_tokens(self, request):
        tensor = pb_utils.get_input_tensor_by_name(request, "max_tokens")
        return MAX_TOKENS if tensor is None else int(tensor.as_numpy()[0])

    def stopped(self, request, ids):
        return torch.full((len(ids),), request.is_cancelled(), device=ids.device)
