"""`ReadinessLog`: why a version of a model is not ready, for the log."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from penstock.models.serving.instance import ModelInstance

logger = logging.getLogger(__name__)


class ReadinessLog:
    """Logs a reason once, however often it is the answer, and when the version is ready again."""

    def __init__(self, model: str, version: int) -> None:
        self._model = model
        self._version = version
        self._told = ""

    def seen(self, instances: Sequence[ModelInstance], healthy: Sequence[bool]) -> None:
        """Take the present answers of the instances."""
        reason = "; ".join(
            f"instance '{instance.name}': {_reason(instance)}"
            for instance, fit in zip(instances, healthy, strict=True)
            if not fit
        )
        if reason == self._told:
            return
        self._told = reason
        text = f"model '{self._model}' version {self._version}"
        extra = {"model": self._model}
        if reason:
            logger.warning("%s is not ready: %s", text, reason, extra=extra)
        else:
            logger.info("%s is ready again", text, extra=extra)


def _reason(instance: ModelInstance) -> str:
    if instance.alive:
        return "it answers that it cannot serve, or does not answer"
    return instance.why_unavailable
