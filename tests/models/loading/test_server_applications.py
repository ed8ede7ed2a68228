"""The tokenizer that the application of a model in the server is given."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fakes import FakeBackend
from penstock.core.backend import Backend, WithApplication
from penstock.core.config import ModelConfig, Parameter
from penstock.core.errors import ModelLoadError
from penstock.core.http_exchange import AsgiApp
from penstock.models.loading import build_version
from penstock.models.loading.build_version import TOKENIZER, server_application


class Maker:
    """An entry point whose function keeps the tokenizer that it is given."""

    def __init__(self) -> None:
        self.given: list[Path | None] = []

    def load(self) -> Maker:
        return self

    def __call__(self, config: ModelConfig, tokenizer: Path | None) -> AsgiApp | None:
        self.given.append(tokenizer)
        return None


@pytest.fixture
def maker(monkeypatch: pytest.MonkeyPatch) -> Maker:
    maker = Maker()
    monkeypatch.setattr(build_version, "announced", lambda group: [maker])
    return maker


def naming(tokenizer: str) -> ModelConfig:
    return ModelConfig(name="m", parameters={TOKENIZER: Parameter(tokenizer)})


@pytest.mark.parametrize("place", ["1/tokenizer.json", "tokenizer.json"])
async def test_a_model_names_its_own_tokenizer(maker: Maker, tmp_path: Path, place: str) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / place).write_text("{}")
    await server_application(None, naming("tokenizer.json"), tmp_path / "1", "/of/the/server")
    assert maker.given == [tmp_path / place]


@pytest.mark.parametrize(("given", "wanted"), [("/some/folder", Path("/some/folder")), ("", None)])
async def test_the_server_names_that_of_other_models(
    maker: Maker, tmp_path: Path, given: str, wanted: Path | None
) -> None:
    await server_application(None, ModelConfig(name="m"), tmp_path, given)
    assert maker.given == [wanted]


class OwnApplication(WithApplication, FakeBackend):
    """A backend with an application of its own."""

    async def openai_app(self) -> AsgiApp | None:
        return None


@pytest.mark.parametrize(
    ("backend", "why"),
    [
        (OwnApplication, "backend 'own' has an application of its own"),
        (None, "its tensors are neither"),
    ],
)
async def test_a_tokenizer_without_effect_is_warned_of(
    maker: Maker,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    backend: type[Backend] | None,
    why: str,
) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    config = replace(naming("tokenizer.json"), backend="own")
    await server_application(backend, config, tmp_path, "/of/the/server")
    assert f"model 'm': parameter '{TOKENIZER}' is without effect: {why}" in caplog.text


async def test_the_tokenizer_of_the_server_is_no_reason_to_warn(
    maker: Maker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await server_application(None, ModelConfig(name="m"), tmp_path, "/of/the/server")
    await server_application(OwnApplication, ModelConfig(name="m"), tmp_path, "/of/the/server")
    assert caplog.text == ""


@pytest.mark.parametrize("name", ["missing.json", ""])
async def test_a_tokenizer_that_is_not_there_refuses_the_model(
    maker: Maker, tmp_path: Path, name: str
) -> None:
    with pytest.raises(ModelLoadError, match=f"'{TOKENIZER}': '{name}' is neither in"):
        await server_application(None, naming(name), tmp_path / "1")
