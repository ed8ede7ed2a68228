"""`ReadinessLog`: log lines with the reason why a model version is not ready."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from penstock.models.serving.instance import ModelInstance

logger = logging.getLogger(__name__)


class ReadinessLog:
    """Logs each reason once, however often readiness is asked for, and the return of readiness."""

    def __init__(self, model: str, version: int) -> None:
        self._model = model
        self._version = version
        self._logged = ""

    def update(self, instances: Sequence[ModelInstance], healthy: Sequence[bool]) -> None:
        """Log a change, if the health of the instances now differs from the last call."""
        reason = "; ".join(
            f"instance '{instance.name}': {_reason(instance)}"
            for instance, is_healthy in zip(instances, healthy, strict=True)
            if not is_healthy
        )
        if reason == self._logged:
            return
        self._logged = reason
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
