"""Options of OpenAI's API, which is on the HTTP port."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.cli import compound, values
from penstock.cli.flags.flag import Flag, Group, boolean, integer, once_each, text
from penstock.cli.flags.restrictions import restriction


def one_each(before: Mapping[str, str], value: tuple[str, str]) -> dict[str, str]:
    """Gathers aliases; one may stand for one model only."""
    alias, model = value
    if before.get(alias, model) != model:
        raise values.ValueRefused(f"'{alias}' is an alias of '{before[alias]}' already")
    return {**before, alias: model}


OPENAI = Group(
    "OpenAI",
    (
        boolean(
            "allow-openai", "openai.enabled", "Serve OpenAI's API, on the HTTP port. Default true."
        ),
        integer(
            "openai-port",
            "openai.port",
            "A further port for OpenAI's API, such as Triton's own 9000; 0 takes a free one.",
            values.port,
        ),
        text(
            "lora-separator",
            "openai.lora_separator",
            'Stands between the names of a model and of its adapter. Default ":"; empty for no '
            "adapters by name.",
        ),
        text(
            "openai-unknown-fields",
            "openai.unknown_fields",
            "Unknown fields of requests to OpenAI's API: refuse or ignore. Default refuse.",
            values.one_of("openai-unknown-fields", "refuse", "ignore"),
        ),
        integer(
            "default-max-tokens",
            "openai.default_max_tokens",
            "Tokens of an answer for which a request to OpenAI's API sets no limit; 0 leaves it to "
            "the model. Default 0.",
            values.not_negative("default-max-tokens"),
        ),
        text(
            "openai-tokenizer",
            "openai.tokenizer",
            "File or folder of a tokenizer that counts tokens, and whose template makes prompts, "
            "for models that name none and whose backend has none, such as those in Python "
            "(penstock.openai_tokenizer).",
        ),
        Flag(
            "openai-alias",
            "string>=<string",
            compound.openai_alias,
            "openai.aliases",
            "A further name in OpenAI's API of a model, or of an adapter by its own name: "
            "<alias>=<model>. Repeatable.",
            one_each,
        ),
        Flag(
            "openai-allow-origin",
            "string",
            compound.origin,
            "openai.allowed_origins",
            "Let scripts of web pages with this origin, such as http://localhost:3000, ask "
            "OpenAI's API; * for all. Repeatable. Default none.",
            once_each,
        ),
        restriction("openai-restricted-api", "api", "openai.restrictions", compound.OPENAI_GROUPS),
    ),
)
