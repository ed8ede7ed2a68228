"""Images in chats, through vLLM's own processing: a random LLaVA, made here.

In the build of vLLM for CPUs every model that takes images needs torchvision, which it does not
bring; beside it on the path (`pip install --target D --no-deps torchvision`), these tests run.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from importlib import import_module
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from backends.exchanging import application, begin, whole
from backends.vllm.real.conftest import IN_CORE
from penstock.core.application import BackendApplication
from penstock.core.config import ModelConfig
from penstock.demo.language_model import CHECKPOINT
from penstock.testing import running
from penstock_backends.vllm import VllmBackend

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(find_spec("torchvision") is None, reason="torchvision is not installed"),
]

SETTINGS = {
    **IN_CORE,
    "model": "model",
    "dtype": "float32",
    "enforce_eager": True,
    "gpu_memory_utilization": 0.1,
    "max_model_len": 256,
    "max_num_seqs": 4,
    "limit_mm_per_prompt": {"image": 2},
}
CHAT = "/v1/chat/completions"
PIXELS = 32
PATCHES = 16
"""Tokens of an image."""


def write_model(folder: Path) -> None:
    """A LLaVA without training: a vision tower of CLIP's and a Llama with the demo's tokenizer."""
    transformers = import_module("transformers")
    import_module("torch").manual_seed(1)
    tokenizer = transformers.AutoTokenizer.from_pretrained(CHECKPOINT)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<image>"]})
    shape = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2}
    text = transformers.LlamaConfig(
        vocab_size=len(tokenizer), max_position_embeddings=1024, head_dim=32, **shape, **heads
    )
    vision = transformers.CLIPVisionConfig(image_size=PIXELS, patch_size=8, **shape, **heads)
    config = transformers.LlavaConfig(
        vision_config=vision,
        text_config=text,
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        image_seq_length=PATCHES,
    )
    transformers.LlavaForConditionalGeneration(config).save_pretrained(folder)
    _name_as_vllm_does(folder / "model.safetensors")
    size = {"height": PIXELS, "width": PIXELS}
    pixels = transformers.CLIPImageProcessor(size={"shortest_edge": PIXELS}, crop_size=size)
    transformers.LlavaProcessor(
        pixels,
        tokenizer,
        patch_size=8,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=tokenizer.chat_template,
    ).save_pretrained(folder)


def _name_as_vllm_does(weights: Path) -> None:
    """Published models have this older name of a part, under which vLLM looks for it."""
    safetensors = import_module("safetensors.torch")
    tensors = safetensors.load_file(weights)
    named = {
        name.replace("vision_tower.", "vision_tower.vision_model."): tensor
        for name, tensor in tensors.items()
    }
    safetensors.save_file(named, weights, metadata={"format": "pt"})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def seeing(
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[BackendApplication]:
    version = tmp_path_factory.mktemp("seeing")
    write_model(version / "model")
    (version / "model.json").write_text(json.dumps(SETTINGS))
    async with (
        running(VllmBackend, ModelConfig(name="m"), version) as instance,
        application(instance.backend) as made,
    ):
        yield made


def image(color: str) -> str:
    """An image in a URL of its own."""
    file = BytesIO()
    import_module("PIL.Image").new("RGB", (40, 30), color).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


async def seen(seeing: BackendApplication, *urls: str) -> tuple[int, Any]:
    """The answer to a question about images."""
    parts: list[Any] = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    content = [{"type": "text", "text": "What is it?"}, *parts]
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": content}],
        "max_tokens": 8,
        "temperature": 0,
        "ignore_eos": True,
    }
    status, text = await whole(begin(seeing, CHAT, body))
    return status, json.loads(text)


async def test_image_is_part_of_the_prompt(seeing: BackendApplication) -> None:
    _, none = await seen(seeing)
    status, red = await seen(seeing, image("red"))
    assert status == 200, red
    more = red["usage"]["prompt_tokens"] - none["usage"]["prompt_tokens"]
    assert more == PATCHES + 1  # and the line end between it and the text


async def test_what_is_on_an_image_changes_the_answer(seeing: BackendApplication) -> None:
    said = [(await seen(seeing, image(color)))[1]["choices"] for color in ("red", "blue", "red")]
    contents = [choices[0]["message"]["content"] for choices in said]
    assert contents[0] == contents[2] != contents[1]


@pytest.mark.parametrize(
    ("urls", "why"),
    [
        ([image("red")] * 3, "At most 2 image(s)"),
        (["data:image/png;base64,AAAA"], "Failed to load image"),
        (["http://169.254.169.254/latest"], "which has no public address"),
        (["file:///etc/passwd"], "files are not read"),
    ],
)
async def test_image_that_is_not_taken_is_refused(
    urls: list[str], why: str, seeing: BackendApplication
) -> None:
    status, answer = await seen(seeing, *urls)
    assert status == 400
    assert why in answer["error"]["message"]
