"""Detection of self-calls that would deadlock (contract PY-16)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from penstock.core.errors import UnsupportedError, call_refused
from penstock.core.request import InferenceRequest


class Reentry:
    """Refuses a call that would deadlock, as it is answered only after its caller has returned.

    That is certain in one case: a model calls itself from the thread that executes, and there is
    no other instance. The callback `busy` says whether the server waits for an execution to return.
    """

    def __init__(
        self, config: Mapping[str, Any], version: int, instance: str, busy: Callable[[], bool]
    ) -> None:
        groups = config.get("instance_group", ())
        count = sum(group.get("count", 1) * max(len(group.get("gpus", ())), 1) for group in groups)
        self._alone = count == 1
        self._model = config["name"]
        self._instance = instance
        self._versions = {str(version)}
        if (config.get("version_policy") or {}).get("latest") == {"num_versions": 1}:
            self._versions.add("")
        self._busy = busy

    def refusal(self, request: InferenceRequest) -> UnsupportedError | None:
        """The error if the call would deadlock, else `None`."""
        if request.model_name != self._model or request.model_version not in self._versions:
            return None
        if not self._alone or not self.holds():
            return None
        problem = (
            f"model '{self._model}' calls itself while its only instance '{self._instance}'"
            " executes: the call would wait for ever; more instances, or a call after 'execute'"
            " has returned, could be answered"
        )
        return UnsupportedError(call_refused(self._model, problem))

    def holds(self) -> bool:
        """Whether the instance is blocked while this thread waits."""
        return self._busy() and _in_main_thread()


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
