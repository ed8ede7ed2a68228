"""Keys, and signatures of models' folders, by the library of OpenSSF model signing."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from model_signing import hashing, signing

_CERTIFIED = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Signer:
    """A private key, in a file, and the file of its public key."""

    private: Path
    public: Path

    @classmethod
    def create(cls, folder: Path, name: str = "key") -> Signer:
        key = ec.generate_private_key(ec.SECP256R1())
        signer = cls(folder / f"{name}.pem", folder / f"{name}.pub")
        signer.private.write_bytes(_private(key))
        pem = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        signer.public.write_bytes(key.public_key().public_bytes(*pem))
        return signer

    def sign(self, model: Path) -> None:
        """Write `model.sig` into a model's folder."""
        config = signing.Config().use_elliptic_key_signer(private_key=self.private)
        _write(config, model)


def sign_with_certificate(model: Path, folder: Path) -> Path:
    """Sign a model's folder by a key whose certificate an authority has issued: that one's file."""
    authority, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    root = _certificate("authority", authority, "authority", authority, issues=True)
    own = _certificate("signer", key, "authority", authority, issues=False)
    paths = [folder / name for name in ("signer.pem", "signer.crt", "authority.crt")]
    paths[0].write_bytes(_private(key))
    for path, certificate in zip(paths[1:], (own, root), strict=True):
        path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    config = signing.Config().use_certificate_signer(
        private_key=paths[0], signing_certificate=paths[1], certificate_chain=[paths[2]]
    )
    _write(config, model)
    return paths[2]


def _write(config: signing.Config, model: Path) -> None:
    files = hashing.Config().set_ignored_paths(paths=["model.sig"])
    config.set_hashing_config(files.set_allow_symlinks(True)).sign(model, model / "model.sig")


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: str,
    by: ec.EllipticCurvePrivateKey,
    *,
    issues: bool,
) -> x509.Certificate:
    usage = x509.KeyUsage(
        digital_signature=not issues,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=issues,
        crl_sign=issues,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        x509.CertificateBuilder()
        .subject_name(_named(name))
        .issuer_name(_named(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_CERTIFIED)
        .not_valid_after(_CERTIFIED + timedelta(days=3650))
        .add_extension(x509.BasicConstraints(ca=issues, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .sign(by, hashes.SHA256())
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
