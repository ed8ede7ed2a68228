"""Limits of media that requests name by URL, and the errors of those beyond them."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.backend import InvalidRequestError, ModelConfig

ALLOWED_HOSTS = "penstock.allowed_media_hosts"
"""Parameter of a model: hosts, separated by commas, that may have addresses that are not public."""


@dataclass(frozen=True, slots=True)
class MediaLimits:
    """Limits of one fetch.

    `allowed_hosts` may have addresses that are not public. Where there are `only_hosts`, no other
    host is asked.
    """

    allowed_hosts: frozenset[str] = frozenset()
    only_hosts: frozenset[str] = frozenset()
    size: int = 32 << 20  # bytes
    seconds: float = 10.0


def media_limits(config: ModelConfig) -> MediaLimits:
    """The limits of a model."""
    hosts = (config.parameter(ALLOWED_HOSTS) or "").split(",")
    return MediaLimits(frozenset(host.strip().lower() for host in hosts if host.strip()))


def media_refusal(name: str, complaint: str) -> InvalidRequestError:
    """The error of what input `name` holds; `complaint` is a verb phrase."""
    return InvalidRequestError(f"input '{name}' {complaint}")


def media_too_large(name: str, limits: MediaLimits) -> InvalidRequestError:
    """The error of input `name` for more bytes than the limits allow."""
    return media_refusal(name, f"is larger than {limits.size} bytes")
