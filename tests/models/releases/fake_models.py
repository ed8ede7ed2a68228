"""Models of a test's own, in place of those that a server has loaded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from penstock.core.errors import InternalError, NotFoundError
from penstock.core.request import InferenceRequest, InferenceResponse, RequestScope
from penstock.core.stream import ResponseStream
from penstock.core.tensor import Tensor
from penstock.models.releases.alias_model import AliasModel
from penstock.models.releases.definition import parse_alias
from penstock.models.serving.served_model import ServedModel


class Config:
    def __init__(self, effects: str | None) -> None:
        self._effects = effects

    def parameter(self, _: str) -> str | None:
        return self._effects


class _Statistics:
    pending = 0


class FakeModel:
    """Answers at once, or when `release` is called, with its number or as `say` says."""

    def __init__(self, number: float, say: Callable[[ResponseStream], None] | None = None) -> None:
        self.number = number
        self.config: Any = Config(None)
        self.decoupled = False
        self.statistics = _Statistics()
        self.requests: list[InferenceRequest] = []
        self.held: list[ResponseStream] = []
        self.holds = False
        self._say = say or self._answer

    def infer(self, request: InferenceRequest) -> ResponseStream:
        self.requests.append(request)
        stream = ResponseStream()
        if self.holds:
            self.held.append(stream)
        else:
            self._say(stream)
        return stream

    exchange = infer

    def release(self) -> None:
        self.holds = False
        while self.held:
            self._say(self.held.pop(0))

    def _answer(self, stream: ResponseStream) -> None:
        tensor = Tensor.from_numpy(np.array([self.number], np.float32))
        stream.send(InferenceResponse({"Y": tensor}, final=True))


class Models:
    """Finds the models of a test, those that are `away` excepted."""

    def __init__(self) -> None:
        self.models = {"old": FakeModel(1), "new": FakeModel(2), "dark": FakeModel(2)}
        self.away: set[str] = set()
        self.asked = Counter[str]()
        self.utilization = 0.0

    def find(self, name: str, _: int) -> ServedModel:
        self.asked[name] += 1
        if name in self.away or name not in self.models:
            raise NotFoundError(f"no '{name}'")
        return cast(ServedModel, self.models[name])

    def fail(self, name: str) -> None:
        """Have a model fail each request."""
        self.models[name] = FakeModel(0, lambda stream: stream.fail(InternalError("no")))

    def alias(self, old: float = 100, **fields: Any) -> AliasModel:
        targets = [{"model": "old", "weight": old}, {"model": "new", "weight": 100 - old}]
        alias = parse_alias("alias", {"targets": targets, **fields})
        return AliasModel(alias, self.find, lambda: self.utilization)


def request(**fields: Any) -> InferenceRequest:
    return InferenceRequest("alias", **{"scope": RequestScope(), **fields})


async def answered(alias: AliasModel, **fields: Any) -> list[InferenceResponse]:
    return [one async for one in alias.infer(request(**fields))]
