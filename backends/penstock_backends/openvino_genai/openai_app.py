"""Facts from a model's files: for OpenAI's API over its engine, and for routers of engines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.backend import BackendNotInstalledError, EngineFacts
from penstock_backends.language_model import PromptTokens
from penstock_backends.openai_kit.generator import ModelFacts
from penstock_backends.openai_kit.packages import kit_imports
from penstock_backends.openvino_genai import gguf
from penstock_backends.openvino_genai.settings import BLOCK_TOKENS, EngineSettings

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
        from penstock_backends.openai_kit.engine_generator import EngineGenerator

    words = _words(settings, tokenizer, *_files(settings))
    facts = ModelFacts(
        name,
        settings.max_model_len,
        settings.vocabulary or tokenizer.get_vocab_size(),
        max(map(len, tokenizer.get_vocab()), default=1),
        words.template,
        words.special_tokens,
    )
    return language_model_app(EngineGenerator(start, tokenizer, prompts, facts), settings.openai)


def read_engine_facts(settings: EngineSettings, tokenizer: Any) -> EngineFacts:
    """Facts of a model for routers of engines; reads its files, on the instance's thread."""
    folder, metadata = _files(settings)
    config = _object(folder / "config.json") if not metadata else {}
    try:
        with kit_imports():
            words = _words(settings, tokenizer, folder, metadata)
    except (BackendNotInstalledError, OSError):
        # Without OpenAI's API, nobody reads templates here; and no template fails the load.
        words = _Words(settings.openai.chat_template, _gguf_tokens(metadata, tokenizer))
    architectures = config.get("architectures")
    architecture = str(metadata.get("general.architecture", config.get("model_type", "")))
    named = {name: tokenizer.token_to_id(text) for name, text in words.special_tokens.items()}
    ends = [named.get("eos_token"), *_ids(config.get("eos_token_id"))]
    return EngineFacts(
        model=str(settings.model),
        tokenizer=str(settings.tokenizer),
        context_length=settings.max_model_len,
        vocabulary=settings.vocabulary or tokenizer.get_vocab_size(),
        model_type=architecture,
        architectures=[*map(str, architectures)] if isinstance(architectures, list) else [],
        eos_token_ids=list(dict.fromkeys(one for one in ends if one is not None)),
        bos_token_id=named.get("bos_token") or 0,
        pad_token_id=named.get("pad_token") or 0,
        chat_template=words.template,
        special_tokens=dict(words.special_tokens),
        max_running=settings.max_num_seqs,
        block_size=BLOCK_TOKENS,
    )


class _Words(NamedTuple):
    """How a conversation becomes a prompt."""

    template: str | None
    special_tokens: Mapping[str, str]


def _words(
    settings: EngineSettings, tokenizer: Any, folder: Path, metadata: Mapping[str, gguf.Scalar]
) -> _Words:
    from penstock_backends.openai_kit.chat_template import find_special_tokens, find_template

    folders = list(dict.fromkeys([settings.tokenizer.parent, folder]))
    within = metadata.get("tokenizer.chat_template")
    template = find_template(folders, within if isinstance(within, str) else None)
    special = {**_gguf_tokens(metadata, tokenizer), **find_special_tokens(folders)}
    return _Words(settings.openai.chat_template or template, special)


def _files(settings: EngineSettings) -> tuple[Path, Mapping[str, gguf.Scalar]]:
    """The folder of the model, and what its GGUF file says, if it is one."""
    model = settings.model
    if model.is_file():
        return model.parent, gguf.read_metadata(model)
    return model, {}


def _object(path: Path) -> Mapping[str, Any]:
    try:
        given = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return given if isinstance(given, dict) else {}


def _ids(given: Any) -> list[int]:
    """One number, or a list of them, as `config.json` has it."""
    return [one for one in (given if isinstance(given, list) else [given]) if type(one) is int]


def _gguf_tokens(metadata: Mapping[str, gguf.Scalar], tokenizer: Any) -> Mapping[str, str]:
    """The special tokens that a GGUF file names by their ids."""
    ids = {name: metadata.get(f"tokenizer.ggml.{name}_token_id") for name in _SPECIAL}
    texts = {
        name: tokenizer.id_to_token(number) for name, number in ids.items() if type(number) is int
    }
    return {_NAMES.get(name, f"{name}_token"): text for name, text in texts.items() if text}
