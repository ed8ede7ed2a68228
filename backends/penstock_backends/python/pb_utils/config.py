"""`ModelConfig`: the argument of a model's `auto_complete_config` (contract PY-02, AC-09)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

Side = Literal["input", "output"]

_PROPERTIES: Mapping[Side, tuple[str, ...]] = {
    "input": ("name", "data_type", "dims", "optional"),
    "output": ("name", "data_type", "dims"),
}
_REQUIRED = ("name", "data_type", "dims")
_NO_DATATYPE = "TYPE_INVALID"


class ModelConfig:
    """A model's configuration, to which the model may add but which it may not contradict.

    Contradictions raise `ValueError` with Triton's text.
    """

    def __init__(self, model_config: str) -> None:
        self._config: dict[str, Any] = json.loads(model_config)
        self._config.setdefault("name", "")
        self._config.setdefault("max_batch_size", 0)
        for side in _PROPERTIES:
            self._config.setdefault(side, [])

    def as_dict(self) -> dict[str, Any]:
        """The configuration as it is now; always with `max_batch_size`, `input` and `output`."""
        return self._config

    def set_max_batch_size(self, max_batch_size: int) -> None:
        """Set the maximum of rows in a batch; not below that of the configuration file."""
        given = self._config["max_batch_size"]
        if given > max_batch_size:
            raise ValueError(
                f"configuration specified max_batch_size {given}, but in"
                f" {self._function} specified max_batch_size {max_batch_size}"
            )
        self._config["max_batch_size"] = max_batch_size

    def set_dynamic_batching(self) -> None:
        """Enable dynamic batching; its settings in the configuration file are kept."""
        for scheduler in ("sequence_batching", "ensemble_scheduling"):
            if scheduler in self._config:
                raise ValueError(
                    f"Configuration specified scheduling_choice as '{scheduler}', but"
                    f" {self._function} tries to set scheduling_choice as 'dynamic_batching'"
                )
        self._config.setdefault("dynamic_batching", {})

    def set_model_transaction_policy(self, transaction_policy_dict: Mapping[str, Any]) -> None:
        """Set whether the model is decoupled: `{"decoupled": True}`."""
        if transaction_policy_dict.keys() - {"decoupled"}:
            raise ValueError(
                f"model transaction property in {self._function} contains property other than"
                " 'decoupled'."
            )
        policy = self._config.setdefault("model_transaction_policy", {})
        if "decoupled" not in transaction_policy_dict:
            return
        wanted = transaction_policy_dict["decoupled"]
        if policy.setdefault("decoupled", wanted) != wanted:
            raise ValueError(
                "trying to change decoupled property in auto-complete-config for model"
                f" '{self._name}', which is already set to '{policy['decoupled']}'."
            )

    def add_input(self, input: Mapping[str, Any]) -> None:
        """Add an input: `name`, `data_type`, `dims`, and `optional` if it may be left out."""
        self._add("input", input)

    def add_output(self, output: Mapping[str, Any]) -> None:
        """Add an output: `name`, `data_type` and `dims`."""
        self._add("output", output)

    def _add(self, side: Side, tensor: Mapping[str, Any]) -> None:
        self._check(side, tensor)
        for declared in self._config[side]:
            if declared.get("name") == tensor["name"]:
                self._check_agreement(side, declared, tensor)
                declared.update(tensor)
                return
        self._config[side].append(dict(tensor))

    def _check(self, side: Side, tensor: Mapping[str, Any]) -> None:
        known = _PROPERTIES[side]
        place = f"in {self._function}"
        name = f"{side} '{tensor['name']}'" if "name" in tensor else side
        if tensor.keys() - set(known):
            raise ValueError(f"{name} {place} contains property other than {_listed(known)}.")
        for property in _REQUIRED:
            if property not in tensor:
                raise ValueError(f"{name} {place} is missing '{property}' property.")

    def _check_agreement(
        self, side: Side, declared: Mapping[str, Any], tensor: Mapping[str, Any]
    ) -> None:
        datatype = declared.get("data_type", _NO_DATATYPE)
        if datatype not in (_NO_DATATYPE, tensor["data_type"]):
            raise ValueError(
                f"unable to load model '{self._name}', configuration expects datatype {datatype}"
                f" for {side} '{tensor['name']}', model provides {tensor['data_type']}"
            )
        self._check_property("dims", declared, tensor, given=bool(declared.get("dims")))
        given = "optional" in declared and "optional" in tensor
        self._check_property("optional", declared, tensor, given=given)

    def _check_property(
        self, property: str, declared: Mapping[str, Any], tensor: Mapping[str, Any], *, given: bool
    ) -> None:
        if given and _plain(declared[property]) != _plain(tensor[property]):
            raise ValueError(
                f"model '{self._name}', tensor '{tensor['name']}': the model expects {property}"
                f" {tensor[property]} but the model configuration specifies {property}"
                f" {declared[property]}"
            )

    @property
    def _name(self) -> str:
        return str(self._config["name"])

    @property
    def _function(self) -> str:
        return f"auto-complete-config function for model '{self._name}'"


def _listed(names: Sequence[str]) -> str:
    *front, last = (f"'{name}'" for name in names)
    return f"{', '.join(front)} and {last}"


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
