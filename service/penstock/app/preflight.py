"""Preflight checks: what can fail at start-up is checked before anything is opened."""

from __future__ import annotations

import errno
import socket

from penstock.core.errors import InferenceError
from penstock.models.loading.load_graph import code_name
from penstock.models.repository.repository import ModelRepository
from penstock.settings import LogSettings, RepositorySettings, Settings
from penstock.telemetry import logging as server_log


class StartError(Exception):
    """The server cannot start; the message is the last line that it prints."""


def open_log(settings: LogSettings) -> None:
    """Open the log outputs that the settings name; raises `StartError`."""
    try:
        server_log.configure(settings)
    except OSError as error:
        raise StartError(f"cannot open the log file: {error}") from error


def check_repository(settings: RepositorySettings) -> None:
    """Check that every model repository is a directory; raises `StartError`."""
    try:
        ModelRepository(settings.paths)
    except InferenceError as error:
        raise StartError(f"creating server: {code_name(error)} - {error}") from error


def check_ports(settings: Settings) -> None:
    """Detect a port in use before models are loaded; host names and IPv4 addresses only.

    Raises `StartError`.
    """
    http, grpc, metrics = settings.http, settings.grpc, settings.metrics
    for part, reuse in ((grpc, grpc.reuse_port), (http, http.reuse_port), (metrics, False)):
        if not part.enabled or not part.port or reuse or ":" in part.address:
            continue
        try:
            with socket.create_server((part.address, part.port)):
                pass
        except OSError as error:
            text = f"Socket '{part.address}:{part.port}' already in use "
            if error.errno != errno.EADDRINUSE:
                text = f"cannot listen on {part.address}:{part.port}: {error.strerror}"
            raise StartError(text) from error
