"""TLS contexts of servers."""

from __future__ import annotations

import ssl


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
    context.load_cert_chain(certificate, key)
    if root_certificate:
        context.load_verify_locations(root_certificate)
    if mutual:
        context.verify_mode = ssl.CERT_REQUIRED
    return context
