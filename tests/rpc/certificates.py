"""An authority for tests, and a server and a client that it vouches for."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from penstock.settings import TlsSettings

needs_openssl = pytest.mark.needs(
    "openssl", "" if shutil.which("openssl") else "openssl is not installed"
)


def write_certificates(folder: Path) -> Path:
    """Keys and certificates named `root`, `server` and `client`, of `localhost`."""
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    # Some TLS libraries refuse a server whose certificate is an authority's.
    subject += ["-addext", "basicConstraints=critical,CA:FALSE"]
    new = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    files = ["-keyout", "root.key", "-out", "root.pem"]
    subprocess.run([*new, "-subj", "/CN=root", *files], cwd=folder, check=True, stderr=-3)
    for name in ("server", "client"):
        signed = ["-CA", "root.pem", "-CAkey", "root.key"]
        files = ["-keyout", f"{name}.key", "-out", f"{name}.pem"]
        subprocess.run([*new, *subject, *signed, *files], cwd=folder, check=True, stderr=-3)
    return folder


def tls(certificates: Path, *, mutual: bool = False) -> TlsSettings:
    """The settings of a server with such certificates."""
    return TlsSettings(
        enabled=True,
        mutual=mutual,
        certificate=str(certificates / "server.pem"),
        key=str(certificates / "server.key"),
        root_certificate=str(certificates / "root.pem"),
    )
