"""The start-up report: tables of backends and models in the log (contract M-18)."""

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
    """Log the backends in use, with the file and the configuration of each; `files` is by name.

    An empty table of repository agents precedes it, as Triton prints one.
    """
    server_log.log_table(logger, table(("Repository Agent", "Path"), ()))
    rows = [(name, file, _configuration(name, settings)) for name, file in files.items()]
    server_log.log_table(logger, table(("Backend", "Path", "Config"), rows))


def show_models(entries: Sequence[ModelIndexEntry], tried: Sequence[str]) -> None:
    """Log the model versions and their states; `tried` are the models of the start."""
    rows = [(e.name, e.version, ": ".join(filter(None, (e.state, e.reason)))) for e in entries]
    versionless = set(tried) - {entry.name for entry in entries}
    rows += [(name, "-", "Not loaded: No model version was found") for name in versionless]
    rows.sort(key=itemgetter(0))
    server_log.log_table(logger, table(("Model", "Version", "Status"), rows))


def _configuration(backend: str, settings: Settings) -> str:
    """A backend's configuration as the JSON that Triton shows (contract B-21)."""
    options = {
        "auto-complete-config": str(settings.repository.auto_complete_config).lower(),
        "min-compute-capability": f"{settings.devices.min_supported_compute_capability:f}",
        "default-max-batch-size": "4",
        **settings.backends.options_for(backend),
    }
    return json.dumps({"cmdline": options}, separators=(",", ":"))
