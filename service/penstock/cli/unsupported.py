"""Options that Triton has and this version does not support yet.

Setting one is an error at start-up rather than ignored. The change that builds a feature removes
its row. Options that only tune Triton's own machinery, such as its thread counts, are accepted.
"""

from dataclasses import dataclass
from typing import Any

from penstock.cli.arguments import default_value
from penstock.settings import Settings
from penstock.settings.rules import SettingsError


@dataclass(frozen=True, slots=True)
class UnsupportedOption:
    """An option whose `field` must keep its default; `feature` is named in the error."""

    field: str
    flag: str
    feature: str


UNSUPPORTED_OPTIONS = (
    UnsupportedOption("repository.namespacing", "model-namespacing", "model namespaces"),
    UnsupportedOption("repository.agent_directory", "repoagent-directory", "repository agents"),
    UnsupportedOption("sagemaker.enabled", "allow-sagemaker", "the SageMaker endpoint"),
    UnsupportedOption("vertex.enabled", "allow-vertex-ai", "the Vertex AI endpoint"),
    UnsupportedOption("trace.levels", "trace-config level", "tracing"),
    UnsupportedOption("trace.mode", "trace-config mode", "tracing"),
    UnsupportedOption("cache.directory", "cache-directory", "caches from a directory"),
)


def refuse_unsupported(settings: Settings) -> None:
    for row in UNSUPPORTED_OPTIONS:
        value = _value(settings, row.field)
        if value != default_value(row.field):
            raise SettingsError(
                f'Bad option: "--{row.flag}".\nnot supported by Penstock yet: {row.feature}'
            )


def _value(settings: Settings, path: str) -> Any:
    value: Any = settings
    for name in path.split("."):
        value = getattr(value, name)
    return value
