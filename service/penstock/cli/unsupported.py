"""What the command line knows and this version cannot do yet.

Such a setting is refused at start rather than ignored. Who builds one of these features removes its
row. Settings that only tune the other server's machinery, such as its thread counts, are accepted.
"""

from dataclasses import dataclass
from typing import Any

from penstock.cli.arguments import default_value
from penstock.settings import Settings
from penstock.settings.rules import SettingsError


@dataclass(frozen=True, slots=True)
class UnsupportedOption:
    """Only the default of `field` is possible so far."""

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
