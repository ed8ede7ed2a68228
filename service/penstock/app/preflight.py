"""Preflight checks: what can fail at start-up is checked before anything is opened."""

from __future__ import annotations

from collections.abc import Callable

from penstock.core.errors import InferenceError
from penstock.models.loading.load_graph import code_name
from penstock.models.remote.address import scheme_of
from penstock.models.repository.repository import ModelRepository
from penstock.settings import LogSettings, RepositorySettings
from penstock.telemetry import logging as server_log
from penstock.telemetry.access_log import AccessLog
from penstock.telemetry.audit_log import AuditLog


class StartError(Exception):
    """The server cannot start; the message is the last line that it prints."""


def open_log(settings: LogSettings) -> None:
    """Open the log outputs that the settings name; raises `StartError`."""
    try:
        server_log.configure(settings)
    except OSError as error:
        raise StartError(f"cannot open the log file: {error}") from error


def open_access_log(target: str, is_json: Callable[[], bool]) -> AccessLog | None:
    """Open the access log, if there is one; raises `StartError`."""
    if target == "off":
        return None
    try:
        return AccessLog(target, is_json)
    except OSError as error:
        raise StartError(f"cannot open the access log: {error}") from error


def open_audit_log(settings: LogSettings) -> AuditLog | None:
    """Open the audit log, if there is one; raises `StartError`."""
    if settings.audit == "off":
        return None
    try:
        return AuditLog(settings.audit, settings.audit_max_bytes)
    except OSError as error:
        raise StartError(f"cannot open the audit log: {error}") from error


def check_repository(settings: RepositorySettings) -> None:
    """Check that every model repository is a directory or an address; raises `StartError`.

    A server that does not exit on errors answers without its repository instead. Whether something
    lies at an address is not asked here.
    """
    if settings.exit_on_error:
        try:
            ModelRepository([path for path in settings.paths if not scheme_of(path)])
        except InferenceError as error:
            raise StartError(f"creating server: {code_name(error)} - {error}") from error
