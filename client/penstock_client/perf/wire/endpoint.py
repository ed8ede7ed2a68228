"""Where a server under load listens, and how connections to it are secured."""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from penstock_client.reading.address import Address


@dataclass(frozen=True, slots=True)
class Endpoint(Address):
    """An address with its certificates: empty files are the system's, and none of the client's.

    With `unverified` any certificate will do.
    """

    root_certificates: str = ""
    certificate: str = ""
    private_key: str = ""
    unverified: bool = False

    def context(self, protocol: str) -> ssl.SSLContext:
        """TLS settings, with the protocol that is spoken inside."""
        context = ssl.create_default_context(cafile=self.root_certificates or None)
        if self.unverified:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.certificate:
            context.load_cert_chain(self.certificate, self.private_key or None)
        context.set_alpn_protocols([protocol])
        return context
