"""Train the demo's language model and write it as a Hugging Face model folder."""

import argparse
import json
import random
from collections.abc import Iterator, Mapping
from itertools import chain, count, islice
from pathlib import Path

import torch
from model import Llama, Shape
from safetensors.torch import save_file
from texts import Texts
from tokenizer import CHAT_TEMPLATE, END, SPECIAL, train_tokenizer
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional

_TOKENS_PER_STEP = 4096
_SHORT_ROWS = 0.8  # share of the steps with rows of half the context, which are computed faster
_LOG_EVERY = 50  # steps


def batches(texts: Texts, tokenizer: Tokenizer, length: int) -> Iterator[Tensor]:
    """The texts in a new order every epoch, in rows that hold one token more than `length`."""
    for epoch in count():
        encoded = tokenizer.encode_batch(texts.of_epoch(random.Random(epoch)))
        source = rows([text.ids for text in encoded], length + 1)
        while batch := list(islice(source, _TOKENS_PER_STEP // length)):
            yield torch.tensor(batch)


def rows(texts: list[list[int]], length: int) -> Iterator[list[int]]:
    """Every row begins with the beginning of a text, as every prompt will."""
    row: list[int] = []
    for text in texts:
        row += text
        if len(row) >= length:
            yield row[:length]
            row = []


def loss_of(model: nn.Module, batch: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(batch[:, :-1])
    return functional.cross_entropy(logits.float().flatten(0, 1), batch[:, 1:].flatten())


def optimizers(model: nn.Module) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the layers, where it learns faster; AdamW for the rest."""
    matrices = [p for name, p in model.named_parameters() if p.dim() == 2 and "layers" in name]
    rest = [p for name, p in model.named_parameters() if p.dim() != 2 or "layers" not in name]
    return [
        torch.optim.Muon(matrices, lr=0.02, weight_decay=0.05, momentum=0.95),
        torch.optim.AdamW(rest, lr=3e-3, betas=(0.9, 0.95), weight_decay=0.0, fused=True),
    ]


def warmup_then_linear(step: int, steps: int) -> float:
    """Share of the full learning rate."""
    return min(1.0, (step + 1) / 100) * max(0.02, min(1.0, 2 * (1 - step / steps)))


def train(model: Llama, source: Iterator[Tensor], steps: int) -> None:
    chosen = optimizers(model)
    schedules = [
        torch.optim.lr_scheduler.LambdaLR(each, lambda step: warmup_then_linear(step, steps))
        for each in chosen
    ]
    for step in range(steps):
        loss = loss_of(model, next(source))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for each in (*chosen, *schedules):
            each.step()
        model.zero_grad()
        if step % _LOG_EVERY == 0 or step == steps - 1:
            print(f"step {step:5}  loss {loss.item():.3f}", flush=True)


def write_folder(folder: Path, shape: Shape, model: Llama, tokenizer: Tokenizer) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: value.to(torch.float16) for name, value in model.state_dict().items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    special = {"eos_token": END, "pad_token": END, "additional_special_tokens": SPECIAL[1:]}
    _write_json(folder / "special_tokens_map.json", special)
    _write_json(folder / "tokenizer_config.json", special | tokenizer_settings(shape))
    _write_json(folder / "config.json", architecture(shape))
    ends = {"bos_token_id": None, "eos_token_id": 0, "pad_token_id": 0}
    _write_json(folder / "generation_config.json", ends)


def tokenizer_settings(shape: Shape) -> dict[str, object]:
    return {
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": shape.context,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }


def architecture(shape: Shape) -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": None,
        "eos_token_id": 0,
        "head_dim": shape.head_size,
        "hidden_act": "silu",
        "hidden_size": shape.hidden,
        "initializer_range": 0.02,
        "intermediate_size": shape.intermediate,
        "max_position_embeddings": shape.context,
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": shape.heads,
        "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.kv_heads,
        "pad_token_id": 0,
        "rms_norm_eps": shape.norm_epsilon,
        "rope_scaling": None,
        "rope_theta": shape.rope_theta,
        "tie_word_embeddings": True,
        "torch_dtype": "float16",
        "use_cache": True,
        "vocab_size": shape.vocabulary,
    }


def _write_json(path: Path, content: Mapping[str, object]) -> None:
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where to write the model")
    parser.add_argument("--steps", type=int, default=1800)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()

    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    shape = Shape()
    texts = Texts.collect()
    tokenizer = train_tokenizer(texts.of_epoch(random.Random(0)), shape.vocabulary)
    model = Llama(shape)
    print(f"{len(texts.documents)} documents, {sum(map(len, texts.documents)):,} characters")
    print(f"{sum(weight.numel() for weight in model.parameters()):,} parameters", flush=True)
    short = batches(texts, tokenizer, shape.context // 2)
    long = batches(texts, tokenizer, shape.context)
    source = chain(islice(short, int(_SHORT_ROWS * arguments.steps)), long)
    train(model, source, arguments.steps)
    write_folder(arguments.folder, shape, model, tokenizer)


if __name__ == "__main__":
    main()
