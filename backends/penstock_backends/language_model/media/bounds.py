"""Limits of media that requests name by URL, and the errors of those beyond them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.backend import InvalidRequestError, ModelConfig

ALLOWED_HOSTS = "penstock.allowed_media_hosts"
"""Parameter of a model: hosts, separated by commas, that may have addresses that are not public."""

ALLOW_URLS = "allow-media-urls"
"""Setting of the server: `true`, `false`, or absent, where models that name hosts have those."""

NO_HOSTS: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class MediaLimits:
    """Limits of one fetch; without `by_url` nothing is fetched, and content comes in data: URLs.

    `allowed_hosts` may have addresses that are not public. Where there are `only_hosts`, no other
    host is asked. `decoded` bounds all audio and video of a request together.
    """

    allowed_hosts: frozenset[str] = NO_HOSTS
    only_hosts: frozenset[str] = NO_HOSTS
    by_url: bool = True
    size: int = 32 << 20  # bytes
    seconds: float = 10.0
    decoded: int = 1 << 30  # bytes

    def check_urls(self, name: str) -> None:
        """Refuse to fetch what input `name` holds, unless that is allowed."""
        if not self.by_url:
            raise media_refusal(
                name,
                "holds a URL, and this server fetches nothing: --allow-media-urls=true allows it, "
                f"or hosts that the model names by '{ALLOWED_HOSTS}'; data: URLs are taken",
            )


def media_limits(
    config: ModelConfig, settings: Mapping[str, str], domains: frozenset[str] = NO_HOSTS
) -> MediaLimits:
    """The limits of a model; `domains` are hosts that its engine's arguments name.

    By the server's `settings` anything public is fetched or nothing at all; without a word of them,
    what is behind the hosts that the model names.
    """
    hosts = (config.parameter(ALLOWED_HOSTS) or "").split(",")
    named = frozenset(host.strip().lower() for host in hosts if host.strip())
    allowed = settings.get(ALLOW_URLS)
    return MediaLimits(
        named | domains,
        domains or (NO_HOSTS if allowed else named),
        by_url=allowed == "true" if allowed else bool(named | domains),
    )


def media_refusal(name: str, complaint: str) -> InvalidRequestError:
    """The error of what input `name` holds; `complaint` is a verb phrase."""
    return InvalidRequestError(f"input '{name}' {complaint}")


def media_too_large(name: str, limits: MediaLimits) -> InvalidRequestError:
    """The error of input `name` for more bytes than the limits allow."""
    return media_refusal(name, f"is larger than {limits.size} bytes")
