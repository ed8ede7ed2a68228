"""Signatures of models' folders, written and read by the library of OpenSSF model signing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.outcomes import raises_nothing
from harness.signing import Signer, sign_with_certificate
from models.repository.files import write_files
from penstock.core.errors import ConfigError, ModelLoadError, UnsupportedError
from penstock.models.repository.integrity import SignatureKey


@pytest.fixture
def signer(tmp_path: Path) -> Signer:
    return Signer.create(tmp_path)


@pytest.fixture
def model(tmp_path: Path, signer: Signer) -> Path:
    """The folder of a signed model."""
    folder = tmp_path / "models" / "m"
    write_files(folder, "config.pbtxt", "1/model.py", "1/weights", text="right")
    signer.sign(folder)
    return folder


def test_a_signed_model_is_right_however_often_it_is_asked(signer: Signer, model: Path) -> None:
    key = SignatureKey(signer.public)
    with raises_nothing():
        key.check(model)
        key.check(model)


def _change(model: Path) -> None:
    (model / "1" / "weights").write_text("wrong")


def _add(model: Path) -> None:
    write_files(model, "2/model.py")


def _compile(model: Path) -> None:
    write_files(model, "1/__pycache__/model.cpython-311.pyc")


def _remove(model: Path) -> None:
    (model / "config.pbtxt").unlink()


def _exchange(model: Path) -> None:
    (model / "model.sig").write_text("{}")


def _link(model: Path) -> None:
    write_files(model.parent, "elsewhere/model.py")
    (model / "2").symlink_to(model.parent / "elsewhere")


_TAMPERED: dict[str, tuple[Callable[[Path], None], str]] = {
    "changed": (_change, r"Hash mismatch for '1/weights'"),
    "added": (_add, r"Extra files found in model 'm': 2/model\.py"),
    "byte code": (_compile, r"Extra files found in model 'm': 1/__pycache__/model"),
    "removed": (_remove, r"Missing files in model 'm': config\.pbtxt"),
    "no signature": (lambda model: (model / "model.sig").unlink(), r"has no 'model\.sig'"),
    "another": (_exchange, r"'model\.sig' is no signature of these files by the key of --model-s"),
    "linked": (_link, r"'2' is a link to a folder"),
}


@pytest.mark.parametrize("how", _TAMPERED)
def test_a_model_that_was_tampered_with_is_refused(signer: Signer, model: Path, how: str) -> None:
    tamper, said = _TAMPERED[how]
    tamper(model)
    with pytest.raises(ModelLoadError, match=said) as refused:
        SignatureKey(signer.public).check(model)
    assert "\n" not in refused.value.message


def test_the_signature_of_somebody_else_is_refused(model: Path, tmp_path: Path) -> None:
    other = Signer.create(tmp_path, "other")
    with pytest.raises(ModelLoadError, match="no signature of these files by the key"):
        SignatureKey(other.public).check(model)


def test_a_signature_counts_for_one_folder_only(signer: Signer, model: Path) -> None:
    other = model.parent / "other"
    write_files(other, "config.pbtxt", "1/model.py", "1/weights", text="other")
    (other / "model.sig").write_bytes((model / "model.sig").read_bytes())
    with pytest.raises(ModelLoadError, match="Hash mismatch"):
        SignatureKey(signer.public).check(other)


def test_links_to_files_are_files(signer: Signer, model: Path) -> None:
    """As the hub's library keeps them."""
    weights = model / "1" / "weights"
    blob = weights.rename(model.parent / "blob")
    weights.symlink_to(blob)
    key = SignatureKey(signer.public)
    with raises_nothing():
        key.check(model)
    blob.write_text("wrong")
    with pytest.raises(ModelLoadError, match="Hash mismatch for '1/weights'"):
        key.check(model)


def test_a_signer_may_have_a_certificate(model: Path, tmp_path: Path) -> None:
    authority = sign_with_certificate(model, tmp_path)
    with raises_nothing():
        SignatureKey(authority).check(model)
    (tmp_path / "other").mkdir()
    other = sign_with_certificate(model, tmp_path / "other")
    with pytest.raises(ModelLoadError, match="no signature of these files"):
        SignatureKey(authority).check(model)
    with raises_nothing():
        SignatureKey(other).check(model)


@pytest.mark.parametrize("content", [b"", b"no key", b"-----BEGIN CERTIFICATE-----\n"])
def test_a_file_that_is_no_key_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key.pub"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=f"^--model-signature-key={path} holds neither"):
        SignatureKey(path)


def test_a_missing_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"in PEM: No such file or directory$"):
        SignatureKey(tmp_path / "key.pub")


def test_a_missing_library_is_named(signer: Signer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "model_signing", None)
    with pytest.raises(UnsupportedError, match=r"pip install 'penstock\[signing\]'"):
        SignatureKey(signer.public)
