"""Authorities, and certificates that they sign: a second takes hundreds of them."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

_DAY = timedelta(days=1)


class Authority:
    """Signs certificates; `pem` is its own, by which they are verified."""

    def __init__(self, name: str = "authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        now = datetime.now(UTC)
        own = _builder(self._name, self._name, self._key.public_key(), now - _DAY, now + 2 * _DAY)
        own = own.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.pem = own.sign(self._key, SHA256()).public_bytes(Encoding.PEM)

    def signed(
        self,
        *,
        dns: Sequence[str] = (),
        uris: Sequence[str] = (),
        begins: timedelta = -_DAY,
        ends: timedelta = _DAY,
        password: bytes = b"",
    ) -> tuple[bytes, bytes]:
        """A certificate with these alternative names, and its key, as PEM; dates count from now."""
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        builder = _builder(_named("leaf"), self._name, key.public_key(), now + begins, now + ends)
        names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(uri) for uri in uris]
        names += [x509.DNSName(name) for name in dns]
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        builder = builder.add_extension(x509.BasicConstraints(False, None), critical=True)
        locked = BestAvailableEncryption(password) if password else NoEncryption()
        return (
            builder.sign(self._key, SHA256()).public_bytes(Encoding.PEM),
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, locked),
        )


def write_pair(folder: Path, name: str, pair: tuple[bytes, bytes]) -> None:
    """Write a certificate and its key, each by a rename."""
    for kind, content in zip(("pem", "key"), pair, strict=True):
        write_whole(folder / f"{name}.{kind}", content)


def write_whole(file: Path, content: bytes) -> None:
    """Replace a file by a rename."""
    new = file.with_name(f".{file.name}.new")
    new.write_bytes(content)
    os.replace(new, file)


def client_context(
    root: bytes, pair: tuple[bytes, bytes] | None = None, protocol: str = "h2"
) -> ssl.SSLContext:
    """The context of a client that trusts an authority and shows a certificate."""
    context = ssl.create_default_context(cadata=root.decode())
    context.set_alpn_protocols([protocol])
    if pair is not None:
        with tempfile.TemporaryDirectory() as folder:
            write_pair(Path(folder), "client", pair)
            context.load_cert_chain(f"{folder}/client.pem", f"{folder}/client.key")
    return context


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    begins: datetime,
    ends: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
    )
