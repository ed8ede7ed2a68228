"""Trains the image tower: python train_tower.py REPOSITORY OUTPUT, with PyTorch and Pillow.

As of CLIP, a picture's vector is near that of what is said of it; the text tower is `minilm` of
the demo, in REPOSITORY, which stays as it is. It takes two minutes.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from drawings import THINGS, drawn
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import nn

_STEPS, _BATCH, _SIDE = 500, 64, 48
_SHARPNESS = 20.0


def text_vectors(model: Path) -> torch.Tensor:
    """What `minilm` makes of the words for each thing."""
    tokenizer = Tokenizer.from_file(str(model / "1" / "tokenizer.json"))
    tokenizer.enable_padding()
    made = tokenizer.encode_batch([words for _, words in THINGS.values()])
    session = onnxruntime.InferenceSession(str(model / "1" / "model.onnx"))
    feeds = {
        "input_ids": np.array([one.ids for one in made]),
        "attention_mask": np.array([one.attention_mask for one in made]),
    }
    return torch.from_numpy(session.run(["EMBEDDING"], feeds)[0])


def tower() -> nn.Sequential:
    """Pixels [rows, 3, 48, 48], scaled from -1 to 1, to vectors."""
    layers: list[nn.Module] = []
    before = 3
    for channels in (16, 32, 64, 96):
        layers += [nn.Conv2d(before, channels, 3, stride=2, padding=1), nn.ReLU()]
        before = channels
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(96 * 9, 384))


def pictures(chance: random.Random) -> tuple[torch.Tensor, torch.Tensor]:
    names = [*THINGS]
    wanted = [chance.randrange(len(names)) for _ in range(_BATCH)]
    arrays = []
    for each in wanted:
        small = drawn(names[each], chance).resize((_SIDE, _SIDE), 2)
        arrays.append(np.asarray(small, np.float32).transpose(2, 0, 1) / 127.5 - 1)
    return torch.from_numpy(np.stack(arrays)), torch.tensor(wanted)


def main(repository: Path, output: Path) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    texts = text_vectors(repository / "minilm")
    model, chance = tower(), random.Random(0)
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 4e-3, _STEPS)
    for step in range(_STEPS):
        pixels, wanted = pictures(chance)
        vectors = nn.functional.normalize(model(pixels))
        alike = vectors @ texts.T
        right = alike.gather(1, wanted[:, None]).mean()
        loss = nn.functional.cross_entropy(alike * _SHARPNESS, wanted) + (1 - right)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        if step % 50 == 0 or step == _STEPS - 1:
            found = (alike.argmax(1) == wanted).float().mean()
            print(
                step, f"loss {loss.item():.3f}, right {found:.2f}, cosine {right:.2f}", flush=True
            )
    save_file({name: value.half() for name, value in model.state_dict().items()}, output)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
