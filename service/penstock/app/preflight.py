"""What is found out before anything is opened; each raises `StartError`."""

from __future__ import annotations

import errno
import socket

from penstock.core.errors import InferenceError
from penstock.models.loading.load_graph import word
from penstock.models.repository.repository import ModelRepository
from penstock.settings import LogSettings, RepositorySettings, Settings
from penstock.telemetry import logging as server_log


class StartError(Exception):
    """The server cannot start; the text is the last line that it prints."""


def open_log(settings: LogSettings) -> None:
    """Open the log outputs that the settings name; raises `StartError`."""
    try:
        server_log.configure(settings)
    except OSError as error:
        raise StartError(f"cannot open the log file: {error}") from error


def check_repository(settings: RepositorySettings) -> None:
    """Find a repository that is no folder here."""
    try:
        ModelRepository(settings.paths)
    except InferenceError as error:
        raise StartError(f"creating server: {word(error)} - {error}") from error


def check_ports(settings: Settings) -> None:
    """Find a taken port before models are loaded rather than after; of names and IPv4 only."""
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
