"""What routers of engines ask about a model of vLLM's, from its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.backend import EngineFacts

if TYPE_CHECKING:
    from penstock_backends.vllm.engine import VllmEngine

_DEFAULTS: Final = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
_SPECIAL: Final = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token")


def read_engine_facts(engine: VllmEngine) -> EngineFacts:
    """The facts of a started engine; what its release of vLLM does not tell is left out."""
    config = engine.llm.vllm_config
    model, structured = config.model_config, config.structured_outputs_config
    hugging = getattr(model, "hf_config", None)
    tokenizer = engine.tokenizer
    parser = str(structured.reasoning_parser or "")
    waits = bool(parser) and not getattr(structured, "enable_in_reasoning", False)
    return EngineFacts(
        model=str(model.model),
        tokenizer=_folder(model),
        generates=engine.generates,
        context_length=engine.facts.context_length,
        vocabulary=engine.facts.vocabulary,
        model_type=str(getattr(hugging, "model_type", None) or ""),
        architectures=[str(one) for one in getattr(model, "architectures", None) or ()],
        eos_token_ids=_ids(getattr(hugging, "eos_token_id", None)),
        bos_token_id=int(getattr(hugging, "bos_token_id", None) or 0),
        pad_token_id=int(getattr(hugging, "pad_token_id", None) or 0),
        sampling_defaults=_defaults(model),
        special_tokens={
            name: str(text) for name in _SPECIAL if (text := getattr(tokenizer, name, None))
        },
        max_running=int(config.scheduler_config.max_num_seqs),
        block_size=int(config.cache_config.block_size or 0),
        cache_dtype=str(config.cache_config.cache_dtype),
        dtype=str(model.dtype),
        reasoning_parser=parser,
        constraints_start="after_reasoning" if waits else "first_token",
        data_parallel_size=int(config.parallel_config.data_parallel_size),
        kv_events={str(rank): one for rank, one in engine.kv_events.addresses.items()},
    )


def _folder(model: Any) -> str:
    """The folder of the tokenizer, also where a hub's name stands for one that is cached here."""
    named = str(getattr(model, "tokenizer", None) or model.model)
    if Path(named).exists():
        return named
    try:
        from huggingface_hub import try_to_load_from_cache

        found = try_to_load_from_cache(
            named, "tokenizer_config.json", revision=getattr(model, "tokenizer_revision", None)
        )
    except Exception:  # of any kind: a name that is none of the hub's
        return ""
    return str(Path(found).parent) if isinstance(found, str) else ""


def _ids(given: Any) -> list[int]:
    return [one for one in (given if isinstance(given, list) else [given]) if type(one) is int]


def _defaults(model: Any) -> Mapping[str, float]:
    """Sampling parameters that the model's generation_config.json has."""
    read = getattr(model, "get_diff_sampling_param", None)
    given = (read() if callable(read) else None) or {}
    return {name: given[name] for name in _DEFAULTS if given.get(name) is not None}
