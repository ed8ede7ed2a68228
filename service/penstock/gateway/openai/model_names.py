"""`ModelNames`: which model, and which of its adapters, a name in OpenAI's API means."""

from __future__ import annotations

from typing import NamedTuple

from penstock.core.errors import NotFoundError
from penstock.gateway.openai.errors import OpenAiError
from penstock.models.serving.served_model import ServedModel
from penstock.server.faces import Inference
from penstock.settings import OpenAiSettings


class FoundModel(NamedTuple):
    """A model, its own name, and the adapter that is named behind it, or empty.

    `full_name` is both as the model's application knows them, where an alias was asked for.
    """

    model: ServedModel
    name: str
    adapter: str
    full_name: str


class ModelNames:
    """Names are a model's own, or an alias; an adapter's stands behind it and the separator.

    A model that there is hides an alias of the same name. Errors name what an alias stands for
    where it `tells_aliases`, which not every caller may know.
    """

    def __init__(
        self, server: Inference, settings: OpenAiSettings, *, tells_aliases: bool = True
    ) -> None:
        self._tells_aliases = tells_aliases
        self._server = server
        self._separator = settings.lora_separator
        self.aliases = settings.aliases

    def find(self, named: str) -> FoundModel:
        """The model that a request names; raises `OpenAiError` without one."""
        own = self.own_name(named)
        found = self._find(named) or self._find(own)
        if found is None:
            aliased = own != named and self._tells_aliases
            raise unknown_model(f"{own}, of which '{named}' is an alias" if aliased else named)
        return found

    def _find(self, named: str) -> FoundModel | None:
        if (model := self._model(named)) is not None:
            return FoundModel(model, named, "", named)
        base, adapter = self.split(named)
        model = self._model(base) if adapter else None
        return None if model is None else FoundModel(model, base, adapter, named)

    def own_name(self, named: str) -> str:
        """The name that an alias stands for, with the adapter named behind it; else the name."""
        if (whole := self.aliases.get(named)) is not None:
            return whole
        base, adapter = self.split(named)
        return f"{self.aliases.get(base, base)}{self._separator}{adapter}" if adapter else named

    def split(self, named: str) -> tuple[str, str]:
        """The names before and behind the separator; the second is empty where one is missing."""
        base, _, adapter = named.partition(self._separator) if self._separator else (named, "", "")
        return (base, adapter) if base and adapter else (named, "")

    def joined(self, name: str, adapter: str) -> str:
        """The name of an adapter of a model."""
        return f"{name}{self._separator}{adapter}"

    @property
    def has_adapters(self) -> bool:
        """Whether adapters have names."""
        return bool(self._separator)

    def _model(self, name: str) -> ServedModel | None:
        try:
            return self._server.find(name, "")
        except NotFoundError:
            return None


def unknown_model(name: str) -> OpenAiError:
    """The error for a name that no model has (OA-06)."""
    return OpenAiError(f"Unknown model: {name}", 404, param="model", code="model_not_found")
