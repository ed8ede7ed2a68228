"""What the command line knows and this version cannot do yet.

Such a setting is refused at start rather than ignored. Who builds one of these features removes its
row. Settings that only tune the other server's machinery, such as its thread counts, are accepted.
"""

from dataclasses import dataclass
from typing import Any

from penstock.cli.reading import default
from penstock.settings import Settings
from penstock.settings.rules import SettingsError


@dataclass(frozen=True, slots=True)
class Missing:
    """Only the default of `field` is possible so far."""

    field: str
    flag: str
    feature: str


MISSING = (
    Missing("repository.namespacing", "model-namespacing", "model namespaces"),
    Missing("repository.agent_directory", "repoagent-directory", "repository agents"),
    Missing("sagemaker.enabled", "allow-sagemaker", "the SageMaker endpoint"),
    Missing("vertex.enabled", "allow-vertex-ai", "the Vertex AI endpoint"),
    Missing("trace.levels", "trace-config level", "tracing"),
    Missing("trace.mode", "trace-config mode", "tracing"),
    Missing("cache.directory", "cache-directory", "caches from a directory"),
)


def refuse_missing(settings: Settings) -> None:
    for row in MISSING:
        value = _value(settings, row.field)
        if value != default(row.field):
            raise SettingsError(
                f'Bad option: "--{row.flag}".\nnot supported by Penstock yet: {row.feature}'
            )


def _value(settings: Settings, path: str) -> Any:
    value: Any = settings
    for name in path.split("."):
        value = getattr(value, name)
    return value
