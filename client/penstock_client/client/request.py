"""Requests of the client, ready to be sent, and the results that come back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module

from penstock.core.tensor import Array, Tensor
from penstock_client.client.shared_memory import SharedTensor

Parameter = bool | int | float | str
Parameters = Mapping[str, Parameter]


@dataclass(frozen=True, slots=True, eq=False)
class InferRequest:
    """One inference request; no `outputs` means all, a value is the memory that one goes to."""

    model: str
    version: str
    inputs: Mapping[str, Tensor | SharedTensor]
    outputs: Mapping[str, SharedTensor | None] = field(default_factory=dict)
    id: str = ""
    parameters: Parameters = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """One response of a model. Its outputs are `result["NAME"]`."""

    model: str
    version: str
    id: str = ""
    parameters: Parameters = field(default_factory=dict)
    outputs: Mapping[str, Tensor] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Array:
        """An output as a read-only array; BYTES are `bytes` objects, BF16 its bits in uint16."""
        return self.tensor(name).numpy()

    def __contains__(self, name: object) -> bool:
        return name in self.outputs

    def tensor(self, name: str) -> Tensor:
        """An output with its datatype, shape and bytes; raises `KeyError` that names the others."""
        found = self.outputs.get(name)
        if found is None:
            known = ", ".join(self.outputs) or "none"
            raise KeyError(f"there is no output '{name}'; there are: {known}")
        return found

    def bfloat16(self, name: str) -> Array:
        """A BF16 output as an array of `ml_dtypes.bfloat16`; that package must be installed."""
        return self.tensor(name).numpy().view(import_module("ml_dtypes").bfloat16)

    def texts(self, name: str) -> list[str]:
        """The elements of a BYTES output, flat, decoded from UTF-8."""
        return [element.decode(errors="replace") for element in self.tensor(name).elements()]

    def text(self, name: str) -> str:
        """The elements of a BYTES output, joined to one string."""
        return "".join(self.texts(name))
