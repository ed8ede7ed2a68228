"""What the log shows once the models of the start are loaded (contract M-18)."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from operator import itemgetter

from penstock.server.answers import ModelIndexEntry
from penstock.settings import Settings
from penstock.telemetry import logging as server_log
from penstock.telemetry.tables import table

logger = logging.getLogger(__name__)


def show_backends(files: Mapping[str, str], settings: Settings) -> None:
    """The table of the backends in use, whose `files` go by name, and what each was told.

    Before it that of repository agents, of which there are none.
    """
    server_log.log_table(logger, table(("Repository Agent", "Path"), ()))
    rows = [(name, file, _configuration(name, settings)) for name, file in files.items()]
    server_log.log_table(logger, table(("Backend", "Path", "Config"), rows))


def show_models(entries: Sequence[ModelIndexEntry], tried: Sequence[str]) -> None:
    """The table of models and what became of them."""
    rows = [(e.name, e.version, ": ".join(filter(None, (e.state, e.reason)))) for e in entries]
    versionless = set(tried) - {entry.name for entry in entries}
    rows += [(name, "-", "Not loaded: No model version was found") for name in versionless]
    rows.sort(key=itemgetter(0))
    server_log.log_table(logger, table(("Model", "Version", "Status"), rows))


def _configuration(backend: str, settings: Settings) -> str:
    """What a backend is told, as Triton tells it (contract B-21)."""
    told = {
        "auto-complete-config": str(settings.repository.auto_complete_config).lower(),
        "min-compute-capability": f"{settings.devices.min_supported_compute_capability:f}",
        "default-max-batch-size": "4",
        **settings.backends.options_for(backend),
    }
    return json.dumps({"cmdline": told}, separators=(",", ":"))
