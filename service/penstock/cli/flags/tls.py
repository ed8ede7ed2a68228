"""Options of TLS, which the gRPC and the HTTP endpoint have alike."""

from __future__ import annotations

from penstock.cli.flags.flag import Flag, boolean, text


def tls_flags(endpoint: str) -> tuple[Flag, ...]:
    """Options that begin with `endpoint`, which is the settings' name of it too."""
    settings = f"{endpoint}.tls"
    return (
        boolean(f"{endpoint}-use-ssl", f"{settings}.enabled", "Encrypt with TLS. Default false."),
        boolean(
            f"{endpoint}-use-ssl-mutual",
            f"{settings}.mutual",
            "Encrypt with TLS and require a certificate of clients too. Default false.",
        ),
        text(
            f"{endpoint}-server-cert",
            f"{settings}.certificate",
            "PEM file: certificate of the server.",
        ),
        text(f"{endpoint}-server-key", f"{settings}.key", "PEM file: key of the server."),
        text(
            f"{endpoint}-root-cert",
            f"{settings}.root_certificate",
            "PEM file: root certificate for those of clients.",
        ),
    )
