"""Registry of the LoRA adapters of a version directory (VL-13)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.backend import InvalidRequestError, ModelLoadError

FILE = "multi_lora.json"


class Adapters:
    """LoRA adapters by name; `paths` is `None` if the engine has LoRA disabled."""

    def __init__(self, paths: Mapping[str, str] | None) -> None:
        self._paths = paths
        self._numbers = {name: number for number, name in enumerate(paths or {}, 1)}

    def find(self, name: str | None) -> Any:
        """vLLM's `LoRARequest` for the adapter; `None` without a name.

        Raises `InvalidRequestError` for an unknown adapter.
        """
        if name is None:
            return None
        if self._paths is None:
            raise InvalidRequestError("LoRA feature is not enabled.")
        if name not in self._paths:
            raise InvalidRequestError(
                f"LoRA {name} is not supported, we currently support {list(self._paths)}"
            )
        from vllm.lora.request import LoRARequest

        return LoRARequest(
            lora_name=name, lora_int_id=self._numbers[name], lora_path=self._paths[name]
        )


def read_adapters(version_path: Path) -> Adapters:
    """Read `multi_lora.json`; paths may be relative to the version directory.

    Raises `ModelLoadError`.
    """
    path = version_path / FILE
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ModelLoadError(f"'enable_lora' is set, but there is no '{path}'") from error
    except ValueError as error:
        raise ModelLoadError(f"'{path}' is not JSON: {error}") from error
    if not isinstance(given, dict) or not all(isinstance(at, str) for at in given.values()):
        raise ModelLoadError(f"'{path}' must hold a JSON object of names and paths")
    return Adapters({name: _resolved(version_path, at) for name, at in given.items()})


def _resolved(version_path: Path, path: str) -> str:
    inside = version_path / path
    return str(inside) if inside.exists() else path
