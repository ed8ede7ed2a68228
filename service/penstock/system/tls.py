"""TLS contexts of servers, and the dates of their certificates."""

from __future__ import annotations

import ssl
from calendar import timegm
from time import strptime

_SEQUENCE, _TAGGED, _UTC_TIME = 0x30, 0xA0, 0x17


def server_context(
    protocol: str, certificate: str, key: str, root_certificate: str = "", *, mutual: bool = False
) -> ssl.SSLContext:
    """A context that speaks `protocol` (its name in ALPN), given paths of PEM files.

    With `mutual` clients need a certificate that the root certificate vouches for. Raises `OSError`
    that names a file which cannot be read, or what is missing.
    """
    for option, given in (("cert", certificate), ("key", key)):
        if not given:
            raise OSError(f"TLS needs a file that the option ...-server-{option} names")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols([protocol])
    for path in (certificate, key, root_certificate):
        if path:
            with open(path, "rb"):
                pass
    context.load_cert_chain(certificate, key, _no_password)
    if root_certificate:
        context.load_verify_locations(root_certificate)
    if mutual:
        context.verify_mode = ssl.CERT_REQUIRED
        # A ticket would let a client in for hours after its certificate has expired.
        context.num_tickets = 0
    return context


def _no_password() -> str:
    """OpenSSL would ask for it on the terminal, and wait."""
    raise OSError("the key is encrypted, and there is no way to give its password")


# -- dates -----------------------------------------------------------------------------------------


def validity(pem: bytes) -> tuple[float, float] | None:
    """From when to when all certificates of a PEM file are valid, in seconds since the epoch.

    `None` where they cannot be read. The standard library shows a certificate only to its peer.
    """
    begins, ends = 0.0, float("inf")
    for part in pem.decode("latin-1").split(ssl.PEM_HEADER)[1:]:
        body, end, _ = part.partition(ssl.PEM_FOOTER)
        if not end:
            return None
        try:
            first, last = _dates(ssl.PEM_cert_to_DER_cert(f"{ssl.PEM_HEADER}{body}{end}"))
        except (ValueError, IndexError):
            return None
        begins, ends = max(begins, first), min(ends, last)
    return (begins, ends) if ends != float("inf") else None


def _dates(der: bytes) -> tuple[float, float]:
    """The dates of a certificate (RFC 5280 section 4.1). Raises `ValueError` or `IndexError`."""
    _, at, _ = _element(der, 0)
    _, at, _ = _element(der, at)
    tag, _, after = _element(der, at)
    if tag == _TAGGED:  # the version
        at = after
    for _ in range(3):  # serial number, algorithm, issuer
        _, _, at = _element(der, at)
    tag, at, _ = _element(der, at)
    if tag != _SEQUENCE:
        raise ValueError("no dates where they should be")
    kind, first, after = _element(der, at)
    begins = _time(kind, der[first:after])
    kind, first, after = _element(der, after)
    return begins, _time(kind, der[first:after])


def _element(der: bytes, at: int) -> tuple[int, int, int]:
    """The tag of an element of DER, and where its content begins and ends."""
    tag, length = der[at], der[at + 1]
    at += 2
    if length & 0x80:
        size = length & 0x7F
        length = int.from_bytes(der[at : at + size])
        at += size
    return tag, at, at + length


def _time(tag: int, text: bytes) -> float:
    """UTCTime has two digits for a year of 1950 to 2049, GeneralizedTime has four."""
    digits = text.decode("ascii")
    if tag == _UTC_TIME:
        digits = ("19" if digits >= "50" else "20") + digits
    return float(timegm(strptime(digits, "%Y%m%d%H%M%SZ")))
