"""The Llama architecture in numpy: slow, short and independent of every engine."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

Array = NDArray[np.float32]


class LlamaReference:
    def __init__(self, checkpoint: Path) -> None:
        self._config: dict[str, Any] = json.loads((checkpoint / "config.json").read_text())
        stored = load_file(checkpoint / "model.safetensors")
        self._weights: dict[str, Array] = {
            name: value.astype(np.float32) for name, value in stored.items()
        }

    def greedy(self, prompt: list[int], count: int) -> list[int]:
        """The next `count` tokens, fewer if the text ends before."""
        tokens = list(prompt)
        while len(tokens) < len(prompt) + count:
            tokens.append(int(self.logits(tokens)[-1].argmax()))
            if tokens[-1] == self._config["eos_token_id"]:
                break
        return tokens[len(prompt) :]

    def logits(self, tokens: list[int]) -> Array:
        embedding = self._weights["model.embed_tokens.weight"]
        states = embedding[tokens]
        for layer in range(self._config["num_hidden_layers"]):
            name = f"model.layers.{layer}."
            states = states + self._attention(name, self._norm(name + "input_layernorm", states))
            states = states + self._feed_forward(
                name + "mlp.", self._norm(name + "post_attention_layernorm", states)
            )
        return self._norm("model.norm", states) @ embedding.T

    def _attention(self, name: str, states: Array) -> Array:
        size = self._config["head_dim"]
        query, key, value = (
            self._linear(f"{name}self_attn.{part}_proj", states)
            .reshape(len(states), -1, size)
            .swapaxes(0, 1)
            for part in "qkv"
        )
        shared = len(query) // len(key)
        query, key = self._rotated(query), self._rotated(key)
        scores = query @ key.repeat(shared, axis=0).swapaxes(1, 2) / np.float32(size**0.5)
        future = np.triu(np.ones(scores.shape[1:], bool), k=1)
        weights = np.exp(np.where(future, -np.inf, scores - scores.max(-1, keepdims=True)))
        weights /= weights.sum(-1, keepdims=True)
        mixed = (weights @ value.repeat(shared, axis=0)).swapaxes(0, 1)
        return self._linear(f"{name}self_attn.o_proj", mixed.reshape(len(states), -1))

    def _rotated(self, heads: Array) -> Array:
        size = heads.shape[-1]
        frequencies = self._config["rope_theta"] ** -(np.arange(0, size, 2) / size)
        angles = np.outer(np.arange(heads.shape[1]), frequencies)
        cosine, sine = (np.tile(f(angles), 2).astype(np.float32) for f in (np.cos, np.sin))
        first, second = np.split(heads, 2, axis=-1)
        return heads * cosine + np.concatenate((-second, first), axis=-1) * sine

    def _feed_forward(self, name: str, states: Array) -> Array:
        gate = self._linear(name + "gate_proj", states)
        opened = gate / (1 + np.exp(-gate)) * self._linear(name + "up_proj", states)
        return self._linear(name + "down_proj", opened)

    def _linear(self, name: str, states: Array) -> Array:
        return states @ self._weights[name + ".weight"].T

    def _norm(self, name: str, states: Array) -> Array:
        power = np.mean(states**2, axis=-1, keepdims=True) + self._config["rms_norm_eps"]
        normalized: Array = states / np.sqrt(power) * self._weights[name + ".weight"]
        return normalized
