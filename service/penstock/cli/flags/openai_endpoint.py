"""Options of OpenAI's API, which is on the HTTP port."""

from __future__ import annotations

from penstock.cli import values
from penstock.cli.flags.flag import Group, boolean, integer, text
from penstock.cli.flags.restrictions import restriction

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
        restriction("openai-restricted-api", "api", "openai.restrictions"),
    ),
)
