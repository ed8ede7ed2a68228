"""OpenAI's API of a model: facts from its files, and the application over its engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock_backends.language_model import PromptTokens
from penstock_backends.openai_kit.generator import ModelFacts
from penstock_backends.openai_kit.packages import kit_imports
from penstock_backends.openvino_genai import gguf
from penstock_backends.openvino_genai.settings import EngineSettings

if TYPE_CHECKING:
    from penstock_backends.openai_kit.asgi import OpenAiApplication
    from penstock_backends.openai_kit.engine_generator import Start

_SPECIAL = ("bos", "eos", "unknown", "padding")
_NAMES = {"unknown": "unk_token", "padding": "pad_token"}


def open_openai_app(
    name: str,
    settings: EngineSettings,
    tokenizer: Any,
    prompts: PromptTokens,
    start: Start,
) -> OpenAiApplication:
    """The application of a model that is loaded."""
    with kit_imports():
        from penstock_backends.openai_kit.application import language_model_app
        from penstock_backends.openai_kit.chat_template import find_special_tokens, find_template
        from penstock_backends.openai_kit.engine_generator import EngineGenerator

    model = settings.model
    folder = model.parent if model.is_file() else model
    folders = list(dict.fromkeys([settings.tokenizer.parent, folder]))
    metadata = gguf.read_metadata(model) if model.is_file() else {}
    within = metadata.get("tokenizer.chat_template")
    template = find_template(folders, within if isinstance(within, str) else None)
    facts = ModelFacts(
        name,
        settings.max_model_len,
        settings.vocabulary or tokenizer.get_vocab_size(),
        max(map(len, tokenizer.get_vocab()), default=1),
        settings.openai.chat_template or template,
        {**_gguf_tokens(metadata, tokenizer), **find_special_tokens(folders)},
    )
    return language_model_app(EngineGenerator(start, tokenizer, prompts, facts), settings.openai)


def _gguf_tokens(metadata: Mapping[str, gguf.Scalar], tokenizer: Any) -> Mapping[str, str]:
    """The special tokens that a GGUF file names by their ids."""
    ids = {name: metadata.get(f"tokenizer.ggml.{name}_token_id") for name in _SPECIAL}
    texts = {
        name: tokenizer.id_to_token(number) for name, number in ids.items() if type(number) is int
    }
    return {_NAMES.get(name, f"{name}_token"): text for name, text in texts.items() if text}
