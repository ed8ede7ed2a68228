"""Random Llamas whose step takes about so long on two cores; written once, into a cache folder.

    python -m loadtest.random_llms          write all, and print the folder

They have the tokenizer of the demo's model. What they say has no sense, and takes as long.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from penstock.demo.language_model import CHECKPOINT, add_gguf

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock-loadtest"
_WRITTEN = 1  # incremented with every change of the written files


@dataclass(frozen=True, slots=True)
class RandomLlm:
    """The shape of a model; without layers it is the demo's own."""

    name: str
    hidden: int = 0
    layers: int = 0
    heads: int = 0
    kv_heads: int = 0
    intermediate: int = 0

    def checkpoint(self) -> Path:
        """Its Hugging Face folder, which is written if it is not there."""
        if not self.layers:
            return CHECKPOINT
        folder = CACHE / f"{self.name}-{_WRITTEN}-{self.hidden}x{self.layers}"
        if not folder.exists():
            CACHE.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=CACHE) as staging:
                fresh = Path(staging) / self.name
                self._write(fresh)
                fresh.rename(folder)
        return folder

    def gguf(self) -> Path:
        """The folder of its GGUF file, which is written if it is not there."""
        checkpoint = self.checkpoint()
        folder = CACHE / f"{checkpoint.name}-gguf"
        if not folder.exists():
            CACHE.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=CACHE) as staging:
                fresh = Path(staging) / self.name
                fresh.mkdir()
                add_gguf(fresh, checkpoint)
                fresh.rename(folder)
        return folder

    def _write(self, folder: Path) -> None:
        from safetensors.numpy import save_file

        shutil.copytree(CHECKPOINT, folder, ignore=shutil.ignore_patterns("*.safetensors"))
        config = json.loads((folder / "config.json").read_text()) | self._architecture()
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        tensors = dict(self._tensors(config))
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    def _architecture(self) -> dict[str, int]:
        return {
            "hidden_size": self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.hidden // self.heads,
            "intermediate_size": self.intermediate,
        }

    def _tensors(self, config: dict[str, Any]) -> Iterator[tuple[str, np.ndarray]]:
        random = np.random.default_rng(len(self.name))
        hidden, shared = self.hidden, self.hidden // self.heads * self.kv_heads

        def matrix(name: str, rows: int, columns: int) -> tuple[str, np.ndarray]:
            values = random.standard_normal((rows, columns), np.float32) * 0.02
            return f"model.{name}.weight", values.astype(np.float16)

        def ones(name: str) -> tuple[str, np.ndarray]:
            return f"model.{name}.weight", np.ones(hidden, np.float16)

        yield matrix("embed_tokens", config["vocab_size"], hidden)
        for number in range(self.layers):
            layer = f"layers.{number}"
            yield ones(f"{layer}.input_layernorm")
            yield ones(f"{layer}.post_attention_layernorm")
            for part, rows in (("q", hidden), ("k", shared), ("v", shared), ("o", hidden)):
                yield matrix(f"{layer}.self_attn.{part}_proj", rows, hidden)
            yield matrix(f"{layer}.mlp.gate_proj", self.intermediate, hidden)
            yield matrix(f"{layer}.mlp.up_proj", self.intermediate, hidden)
            yield matrix(f"{layer}.mlp.down_proj", hidden, self.intermediate)
        yield ones("norm")


MODELS = (
    RandomLlm("0.3ms"),
    RandomLlm("5ms", hidden=768, layers=6, heads=12, kv_heads=4, intermediate=2048),
    RandomLlm("20ms", hidden=1024, layers=12, heads=16, kv_heads=8, intermediate=2816),
)

if __name__ == "__main__":
    for model in MODELS:
        print(model.checkpoint(), model.gguf())
