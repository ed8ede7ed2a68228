"""Archives of NeMo: read, and not unpacked."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

import pytest

from penstock.models.sources.draft import SourceError, Wishes
from penstock.models.sources.recognise import model_of

ASR = "nemo.collections.asr.models.ctc_bpe_models.EncDecCTCModelBPE"
GPT = "nemo.collections.nlp.models.language_modeling.megatron_gpt_model.MegatronGPTModel"


def _archive(path: Path, **members: bytes) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(f"./{name}.yaml")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def _refusal(path: Path) -> str:
    with pytest.raises(SourceError) as refused:
        model_of(str(path), Wishes())
    return str(refused.value)


@pytest.mark.contract("SD-02")
@pytest.mark.parametrize(
    ("target", "command"),
    [(ASR, "ModelPT.restore_from("), (GPT, "from nemo.export.tensorrt_llm import TensorRTLLM")],
)
def test_the_command_of_nemo_is_printed(tmp_path: Path, target: str, command: str) -> None:
    told = f"a: 1\nsub:\n  target: other.Thing\ntarget: {target}\n".encode()
    text = _refusal(_archive(tmp_path / "m.nemo", other=b"x", model_config=told))
    assert target in text
    assert command in text
    assert "penstock import" in text
    assert "may run any code: trust who made it" in text


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.nemo"
    path.write_bytes(b"not a tar")
    assert "is no archive of NeMo" in _refusal(path)
    assert "has no model_config.yaml" in _refusal(_archive(path, other=b"x"))
    assert "there is no file" in _refusal(tmp_path / "none.nemo")


def test_an_archive_that_grows_without_end_is_left(tmp_path: Path) -> None:
    path = tmp_path / "m.nemo"
    with gzip.open(path, "wb", compresslevel=9) as file:
        member = tarfile.TarInfo("weights")
        member.size = 1 << 40
        file.write(member.tobuf())
        for _ in range(200):
            file.write(bytes(1 << 20))
    assert "is no archive of NeMo" in _refusal(path)
