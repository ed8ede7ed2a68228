"""The models of the simulated world, and the repository that has them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from penstock.models.repository.override import ModelOverride
from penstock.models.repository.repository import ModelFiles, ModelRepository

_TENSORS = """
input { name: "X" data_type: TYPE_INT32 dims: -1 }
output { name: "Y" data_type: TYPE_INT32 dims: -1 }
"""
_PROCESS = 'parameters { key: "penstock.host" value: { string_value: "process" } }'

MODELS = {
    "plain": f'backend: "played" {_PROCESS} instance_group {{ kind: KIND_CPU count: 2 }}',
    "alone": f'backend: "played" {_PROCESS}',
    "batched": f"""backend: "played" {_PROCESS} max_batch_size: 4
        dynamic_batching {{ max_queue_delay_microseconds: 3000 preserve_ordering: true }}""",
    "local": """backend: "played" max_batch_size: 3 dynamic_batching {
        default_queue_policy { max_queue_size: 6 default_timeout_microseconds: 200000
        allow_timeout_override: true } }""",
    "stream": f"""backend: "engine" {_PROCESS} model_transaction_policy {{ decoupled: true }}
        parameters {{ key: "penstock.response_window" value: {{ string_value: "4" }} }}""",
    "serial_stream": f"""backend: "played" {_PROCESS}
        model_transaction_policy {{ decoupled: true }}""",
    "sequences": f"""backend: "played" {_PROCESS} max_batch_size: 2 sequence_batching {{
        max_sequence_idle_microseconds: 3000000 direct {{ }} }}""",
    "oldest": f"""backend: "played" {_PROCESS} max_batch_size: 4 sequence_batching {{
        max_sequence_idle_microseconds: 3000000 oldest {{ max_candidate_sequences: 3 }} }}""",
    "pipeline": """platform: "ensemble" max_batch_size: 3 ensemble_scheduling {
        step { model_name: "batched" model_version: -1
          input_map { key: "X" value: "X" } output_map { key: "Y" value: "between" } }
        step { model_name: "local" model_version: -1
          input_map { key: "X" value: "between" } output_map { key: "Y" value: "Y" } } }""",
}


def write_repository(path: Path) -> None:
    """The models of the world, of which nothing but the configuration is on disk."""
    for name, config in MODELS.items():
        (path / name / "1").mkdir(parents=True)
        (path / name / "config.pbtxt").write_text(config + _TENSORS)


class PlayedRepository(ModelRepository):
    """Has some of the models on disk, and reads each once for all seeds."""

    _read: ClassVar[dict[tuple[Path, str], ModelFiles]] = {}

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        super().__init__([path])
        self._path = path
        self._names = names

    def names(self) -> list[str]:
        return [*self._names]

    def described(self, name: str) -> ModelFiles:
        return self.read(name)

    def read(
        self, name: str, override: ModelOverride | None = None, scratch: Path | None = None
    ) -> ModelFiles:
        assert override is None
        known = self._path, name
        if known not in self._read:
            self._read[known] = super().read(name)
        return self._read[known]
