"""Options that Triton has and this version does not support yet.

Setting one is an error at start-up rather than ignored. The change that builds a feature removes
its row. Options that only tune Triton's own machinery, such as its thread counts, are accepted, and
logged as such (`settings.without_effect`).
"""

from dataclasses import dataclass

from penstock.settings import Settings
from penstock.settings.fields import default_value, value_of
from penstock.settings.rules import SettingsError


@dataclass(frozen=True, slots=True)
class UnsupportedOption:
    """An option whose `field` must keep its default; `feature` is named in the error."""

    field: str
    flag: str
    feature: str


UNSUPPORTED_OPTIONS = (
    UnsupportedOption("repository.agent_directory", "repoagent-directory", "repository agents"),
    UnsupportedOption("cache.directory", "cache-directory", "caches from a directory"),
)


def refuse_unsupported(settings: Settings) -> None:
    for row in UNSUPPORTED_OPTIONS:
        value = value_of(settings, row.field)
        if value != default_value(row.field):
            raise SettingsError(
                f'Bad option: "--{row.flag}".\nnot supported by Penstock yet: {row.feature}'
            )


_OF_MODEL = "it is a key of the object 'openai' in the model.json of a model here"

OF_OPENAI_FRONTEND = {
    "backend": "each model names its own backend here",
    "chat-template": _OF_MODEL,
    "enable-kserve-frontends": "KServe is always served here, on --http-port and --grpc-port",
    "kserve-grpc-port": "it is --grpc-port here",
    "kserve-http-port": "it is --http-port here",
    "max-tool-call-parse-bytes": "tool calls are parsed by the application of a model here",
    "tokenizer": "the tokenizer is that of the model here",
    "tool-call-parser": _OF_MODEL,
    "tritonserver-log-verbose-level": "it is --log-verbose here",
    "uvicorn-log-level": "it is --log-verbose here",
}
"""Options of Triton's OpenAI frontend, a program of its own, and what takes their place."""
