"""Names in certificates of clients: by URI first, as SPIFFE has them, then by host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from penstock.core.errors import ConfigError

_MOST: Final = 32
"""Names of one certificate that are looked at."""
_LONGEST: Final = 2048
_DNS: Final = "dns:"
_KINDS: Final = ("URI", "DNS")


def certificate_names(shown: Mapping[str, Any] | None) -> tuple[str, ...]:
    """The names in a certificate that TLS has verified, in the form of `ssl.getpeercert`.

    Those of a kind keep their order. The common name is none: authorities do not check it.
    """
    if not shown:
        return ()
    return names_of_kinds((kind, text) for kind, text, *_ in shown.get("subjectAltName", ()))


def names_of_kinds(names: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Alternative names, each with its kind, as policies know them."""
    found = [*names]
    texts = [_known(kind, text) for wanted in _KINDS for kind, text in found if kind == wanted]
    return tuple(texts[:_MOST])


def parse_certificate_name(text: str) -> str:
    """The name that a policy writes as a URI, or as `dns:` and a host; raises `ConfigError`."""
    host = text[len(_DNS) :] if text.startswith(_DNS) else None
    right = "://" in text if host is None else host and set(host).isdisjoint("/: ")
    if not right or "*" in text or len(text) > _LONGEST or not text.isprintable():
        raise ConfigError(
            f"'{text[:_LONGEST]}' must be a URI ('spiffe://...'), or '{_DNS}' and the name of a"
            " host; wildcards are for rules"
        )
    return _known("URI", text) if host is None else _known("DNS", host)


def _known(kind: str, text: str) -> str:
    """A URI is never taken for a host, whatever its scheme. Hosts have no case."""
    return f"{kind}:{text.lower() if kind == 'DNS' else text}"
