"""`ResponseTransforms`: what each response of a model passes on its way to the client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.core.config import ModelConfig
from penstock.core.request import InferenceRequest
from penstock.inflight.inference import Inference
from penstock.inflight.traced_responses import TracedResponses
from penstock.models.serving.classification import Classifier
from penstock.models.serving.reshape import response_reshape


class ResponseTransforms:
    """Gives requests the transforms of their responses, in this order: shapes as the client knows
    them, classes in place of scores, counters, the timeline of a traced request.

    `labels` are class labels by output; `counts` says whether responses are counted one by one.
    """

    def __init__(
        self, config: ModelConfig, labels: Mapping[str, Sequence[bytes]], *, counts: bool
    ) -> None:
        self._model = config.name
        self._reshape = response_reshape(config)
        self._classifier = Classifier(config.max_batch_size > 0, labels)
        self._counts = counts

    def follow(self, inference: Inference, request: InferenceRequest) -> None:
        """Let each response of `inference` pass what its client, the counters or a trace want."""
        to_client = self._reshape
        if request.classes:
            to_client = self._classifier.transform(request.classes, to_client)
        if request.timeline is not None:
            inference.record(request.timeline, self._model)
        if self._counts:
            to_client = inference.counting_responses(to_client)
        if inference.timeline is not None:
            to_client = TracedResponses(inference.timeline, to_client)
        inference.stream.transform = to_client
