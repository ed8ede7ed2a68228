"""A server whose models must be signed, and one that reads names and pickles of strangers."""

from __future__ import annotations

from pathlib import Path

import pytest
from tritonclient.grpc import InferenceServerClient
from tritonclient.utils import InferenceServerException

from app.python_models import write_python_model
from app.test_start import failed
from harness.hub import hub
from harness.serving import serving
from harness.signing import Signer

pytestmark = pytest.mark.slow

MODEL = """
import beside


class TritonPythonModel:
    def execute(self, requests):
        return []
"""
EXPLICIT = "--model-control-mode=explicit"


def test_only_signed_models_are_loaded(tmp_path: Path) -> None:
    signer, repository = Signer.create(tmp_path), tmp_path / "models"
    for name in ("signed", "unsigned"):
        model = write_python_model(repository, name, MODEL)
        (model / "1" / "beside.py").write_text("")
    signer.sign(repository / "signed")
    flags = EXPLICIT, f"--model-signature-key={signer.public}"
    with (
        serving(repository, tmp_path / "log", *flags) as served,
        InferenceServerClient(served.grpc) as client,
    ):
        for _ in range(2):  # byte code of the first load would be a file that is not signed
            client.load_model("signed")
            client.unload_model("signed")
        client.load_model("signed")
        with pytest.raises(InferenceServerException, match=r"the model has no 'model\.sig'"):
            client.load_model("unsigned")
        (repository / "signed" / "1" / "beside.py").write_text("evil = True")
        with pytest.raises(InferenceServerException, match=r"Hash mismatch for '1/beside\.py'"):
            client.load_model("signed")
        assert client.is_model_ready("signed")
    assert (
        "failed to load 'unsigned' version 1: Invalid argument: the model has no"
        in (tmp_path / "log").read_text()
    )


def test_a_key_that_is_none_ends_the_start_with_a_line(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("none")
    (tmp_path / "models").mkdir()
    lines = failed(tmp_path / "models", tmp_path / "log", f"--model-signature-key={tmp_path}/key")
    said = f"Invalid argument - --model-signature-key={tmp_path}/key holds neither a public key"
    assert lines[-1].startswith(f"error: creating server: {said}")


def test_files_of_the_hub_with_hostile_names_harm_their_model_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    config = b'backend: "identity"'
    with hub() as found:
        monkeypatch.setenv("HF_ENDPOINT", found.url)
        found.files = {
            "climbs/config.pbtxt": config,
            "climbs/1/../../../evil": b"x",
            "clashes/config.pbtxt": config,
            "clashes/1": b"x",
            "clashes/1/model": b"x",
        }
        with (
            serving(None, tmp_path / "log", "--model-repository=hf://owner/models", EXPLICIT) as at,
            InferenceServerClient(at.grpc) as client,
        ):
            with pytest.raises(InferenceServerException, match=r"is no path: it has a part '\.\.'"):
                client.load_model("climbs")
            with pytest.raises(InferenceServerException, match="lies below another"):
                client.load_model("clashes")
        assert not found.gets
