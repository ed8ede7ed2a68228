"""Where a server listens."""

from __future__ import annotations

import ssl
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a server listens, and how connections to it are secured.

    `authority` names a certificate; empty files are the system's certificates and no certificate of
    the client's. With `unverified` any certificate will do.
    """

    host: str
    port: int
    secure: bool = False
    root_certificates: str = ""
    certificate: str = ""
    private_key: str = ""
    unverified: bool = False

    @property
    def authority(self) -> str:
        """Host and port as they stand in requests."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

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
