"""The demo's tiny language model: converted from a Hugging Face folder to the engine's format."""

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.demo.gguf import Value, write_gguf

if TYPE_CHECKING:
    import numpy as np

CHECKPOINT = Path(__file__).with_name("assets") / "tiny_llm"
WEIGHTS = CHECKPOINT / "model.safetensors"
INSTALL = "pip install --force-reinstall --no-deps penstock"

_ALL_WEIGHTS_F16 = 1  # general.file_type
_ORDINARY, _CONTROL = 1, 3  # tokenizer.ggml.token_type
_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def add_checkpoint(version: Path) -> None:
    """Copy the folder unchanged, for engines that read Hugging Face models."""
    shutil.copytree(CHECKPOINT, version / "model")


def add_gguf(version: Path, checkpoint: Path = CHECKPOINT) -> None:
    """Write one GGUF file of a Hugging Face folder, and the tokenizer for prompts."""
    from safetensors.numpy import load_file

    config = _json(checkpoint / "config.json")
    tokenizer = _json(checkpoint / "tokenizer.json")
    weights = load_file(checkpoint / WEIGHTS.name)
    tensors = {_gguf_name(name): _gguf_tensor(name, weights[name], config) for name in weights}
    metadata = _architecture(config, checkpoint.name) | _vocabulary(tokenizer, config)
    metadata["tokenizer.chat_template"] = (checkpoint / "chat_template.jinja").read_text("utf-8")
    write_gguf(version / "model.gguf", metadata, dict(sorted(tensors.items())))
    shutil.copyfile(checkpoint / "tokenizer.json", version / "tokenizer.json")


def _json(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


def _gguf_name(name: str) -> str:
    part = name.removesuffix(".weight")
    if part in _NAMES:
        return f"{_NAMES[part]}.weight"
    layer, part = part.removeprefix("model.layers.").split(".", maxsplit=1)
    return f"blk.{layer}.{_NAMES[part]}.weight"


def _gguf_tensor(name: str, weight: "np.ndarray", config: dict[str, Any]) -> "np.ndarray":
    if weight.ndim == 1:
        return weight.astype("float32")
    if name.endswith("q_proj.weight"):
        return _interleaved(weight, config["num_attention_heads"])
    if name.endswith("k_proj.weight"):
        return _interleaved(weight, config["num_key_value_heads"])
    return weight


def _interleaved(weight: "np.ndarray", heads: int) -> "np.ndarray":
    """GGUF rotates neighbouring rows of a head; the checkpoint rotates its two halves."""
    halves = weight.reshape(heads, 2, -1, weight.shape[1])
    return halves.swapaxes(1, 2).reshape(weight.shape)


def _architecture(config: dict[str, Any], name: str) -> dict[str, Value]:
    return {
        "general.architecture": "llama",
        "general.name": name,
        "general.file_type": _ALL_WEIGHTS_F16,
        "llama.context_length": config["max_position_embeddings"],
        "llama.embedding_length": config["hidden_size"],
        "llama.block_count": config["num_hidden_layers"],
        "llama.feed_forward_length": config["intermediate_size"],
        "llama.attention.head_count": config["num_attention_heads"],
        "llama.attention.head_count_kv": config["num_key_value_heads"],
        "llama.attention.key_length": config["head_dim"],
        "llama.attention.value_length": config["head_dim"],
        "llama.attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        "llama.rope.dimension_count": config["head_dim"],
        "llama.rope.freq_base": config["rope_theta"],
        "llama.vocab_size": config["vocab_size"],
    }


def _vocabulary(tokenizer: dict[str, Any], config: dict[str, Any]) -> dict[str, Value]:
    numbers: dict[str, int] = tokenizer["model"]["vocab"]
    tokens = sorted(numbers, key=numbers.__getitem__)
    special = {token["content"] for token in tokenizer["added_tokens"]}
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [_CONTROL if t in special else _ORDINARY for t in tokens],
        "tokenizer.ggml.merges": [" ".join(pair) for pair in tokenizer["model"]["merges"]],
        "tokenizer.ggml.eos_token_id": config["eos_token_id"],
        "tokenizer.ggml.padding_token_id": config["pad_token_id"],
        "tokenizer.ggml.add_bos_token": False,
    }
