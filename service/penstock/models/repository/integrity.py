"""Integrity: the files of a model are those that its pins and its signature say."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

from penstock.core.config import ModelConfig
from penstock.core.errors import ConfigError, ModelLoadError, UnsupportedError, shortened
from penstock.models.config.pins import Pin, pins_of

_MISMATCH = "Signature mismatch: "
"""How the library begins its list of what differs."""

SIGNATURE = "model.sig"
"""The file in a model's folder with the signature of all others."""


def check_files(config: ModelConfig, folder: Path, key: SignatureKey | None) -> None:
    """Hash the files that a model pins, and all if they must be signed; raises `ModelLoadError`.

    Whoever can write to the folder can still exchange a file between this and its use.
    """
    if key is not None:
        key.check(folder)
    for pin in pins_of(config):
        found = _digest(pin, folder)
        if found != pin.digest.lower():
            raise ModelLoadError(
                f"the file '{pin.file}' is not the one that '{pin.key}' pins: its hash is {found}"
            )


def _digest(pin: Pin, folder: Path) -> str:
    try:
        with (folder / pin.file).open("rb") as file:
            return hashlib.file_digest(file, pin.algorithm).hexdigest()
    except OSError as error:
        raise ModelLoadError(
            f"the file '{pin.file}', which '{pin.key}' pins, cannot be read: {error.strerror}"
        ) from error


class SignatureKey:
    """Whose signatures models must have, as OpenSSF model signing writes them.

    `path` is a file of a public key, or of the certificates that the signer's is issued by; it is
    read for each model. Raises `UnsupportedError` without the library, `ConfigError` for a file
    that is neither.
    """

    def __init__(self, path: Path) -> None:
        try:
            from model_signing import hashing, verifying
        except ImportError as error:
            raise UnsupportedError(
                "--model-signature-key needs model_signing: pip install 'penstock[signing]'"
            ) from error
        self._path = path
        self._hashing: Any = hashing
        self._verifying: Any = verifying
        try:
            self._verifier()
        except Exception as error:  # those of the library and of what it is built on
            raise ConfigError(
                f"--model-signature-key={path} holds neither a public key of an elliptic curve nor"
                f" certificates, in PEM: {_reason(error)}"
            ) from error

    def check(self, folder: Path) -> None:
        """Verify the signature of a model's folder; raises `ModelLoadError`."""
        signature = folder / SIGNATURE
        if not signature.is_file():
            raise ModelLoadError(
                f"the model has no '{SIGNATURE}', and this server loads signed models only"
                " (--model-signature-key)"
            )
        _refuse_linked_folders(folder)
        try:
            self._verifier().verify(folder, signature)
        except Exception as error:  # those of the library and of what it is built on
            raise ModelLoadError(
                f"'{SIGNATURE}' is no signature of these files by the key of"
                f" --model-signature-key: {_reason(error)}"
            ) from error

    def _verifier(self) -> Any:
        """A new one, as each learns from what it verifies."""
        files = self._hashing.Config().set_ignored_paths(paths=[SIGNATURE])
        config = self._verifying.Config().set_hashing_config(files.set_allow_symlinks(True))
        if b"-----BEGIN CERTIFICATE-----" in self._path.read_bytes():
            return config.use_certificate_verifier(certificate_chain=[self._path])
        return config.use_elliptic_key_verifier(public_key=self._path)


def _refuse_linked_folders(folder: Path) -> None:
    """Refuse links to folders, which the library does not look into, as engines do.

    Those to files are as good as files: the hub's library keeps them so.
    """
    for parent, folders, _ in os.walk(folder):
        for name in folders:
            if (path := Path(parent, name)).is_symlink():
                raise ModelLoadError(
                    f"'{path.relative_to(folder)}' is a link to a folder, and '{SIGNATURE}' does"
                    " not cover what lies in it"
                )


def _reason(error: Exception) -> str:
    """What the library says, in a line and without digests; some errors say nothing."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = str(error).partition("\n")[0]
    if text.startswith(_MISMATCH):
        found = text.removeprefix(_MISMATCH).replace("\\'", "'").strip("[]\"'")
        text = found.partition(": Expected")[0]
    return shortened(text) or type(error).__name__
