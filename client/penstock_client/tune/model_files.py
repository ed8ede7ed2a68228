"""The files of a model, and a copy of them that holds a variant."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf import json_format, text_format

from penstock.core.errors import ConfigError
from penstock.models.config.pbtxt import parse_pbtxt
from penstock.models.config.stray_bytes import without_stray_bytes
from penstock.protocol.model_config_pb2 import ModelConfig
from penstock_client.perf.errors import Status
from penstock_client.tune.errors import TuneError, VariantError
from penstock_client.tune.pbtxt_text import merge
from penstock_client.tune.settings import change, engine_changes, is_engine

CONFIG, ENGINE_FILE = "config.pbtxt", "model.json"


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model as its owner wrote it: `text` is that of `config.pbtxt`.

    `path` is its folder, empty for a model that a server elsewhere has. `engine_path` is that of
    `model.json`, below the folder; `None` where there is none.
    """

    name: str
    path: Path
    text: str
    engine_path: Path | None = None
    engine: Mapping[str, Any] = field(default_factory=dict)

    @property
    def steps(self) -> Sequence[str]:
        """The models of an ensemble's steps."""
        config = text_format.Parse(self.text, ModelConfig())
        return [step.model_name for step in config.ensemble_scheduling.step]

    def config_text(self, changes: Mapping[str, Any]) -> str:
        """`config.pbtxt` of a variant; raises `VariantError`."""
        changed = {name: value for name, value in changes.items() if not is_engine(name)}
        if not changed:
            return self.text
        config = json_format.MessageToDict(
            text_format.Parse(self.text, ModelConfig()), preserving_proto_field_name=True
        )
        try:
            for name, value in changed.items():
                change(config, name, value)
            wanted = json_format.ParseDict(config, ModelConfig())
        except (json_format.ParseError, AttributeError, TypeError) as error:
            raise VariantError(f"not a configuration: {error}") from error
        return merge(self.text, wanted)

    def config_json(self, changes: Mapping[str, Any]) -> str:
        """The configuration of a variant in JSON, as a load request takes it."""
        config = text_format.Parse(self.config_text(changes), ModelConfig())
        return str(json_format.MessageToJson(config, preserving_proto_field_name=True))

    def engine_text(self, changes: Mapping[str, Any]) -> str:
        """`model.json` of a variant, with the keys of the original in their order."""
        return json.dumps({**self.engine, **engine_changes(changes)}, indent=2) + "\n"

    def write(self, changes: Mapping[str, Any], repository: Path) -> None:
        """Write the model's folder into a repository, with links; raises `VariantError`."""
        config = self.config_text(changes)
        model = repository / self.name
        model.mkdir()
        for entry in self.path.iterdir():
            if entry.name != CONFIG:
                (model / entry.name).symlink_to(entry)
        (model / CONFIG).write_text(config)
        if self.engine_path is not None and engine_changes(changes):
            self._write_engine(model, changes)

    def _write_engine(self, model: Path, changes: Mapping[str, Any]) -> None:
        assert self.engine_path is not None
        version = self.engine_path.parent
        (model / version).unlink()  # a link to all of it
        (model / version).mkdir()
        for entry in (self.path / version).iterdir():
            (model / version / entry.name).symlink_to(entry)
        (model / self.engine_path).unlink()
        (model / self.engine_path).write_text(self.engine_text(changes))


def read_files(folder: Path) -> ModelFiles:
    """Read the settings of the model in a folder; raises `TuneError`."""
    engine_path = _engine_path(folder)
    engine = _engine(folder / engine_path) if engine_path else {}
    return ModelFiles(folder.name, folder, _config_text(folder / CONFIG), engine_path, engine)


def _config_text(path: Path) -> str:
    if not path.exists():
        return ""  # the server completes it
    try:
        content = path.read_bytes()
        parse_pbtxt(content, path)
    except (OSError, ConfigError) as error:
        raise TuneError(str(error), Status.UNREACHABLE) from error
    return without_stray_bytes(content)[0]


def _engine_path(model: Path) -> Path | None:
    """The `model.json` of the largest version, below the model's folder."""
    versions = [each for each in model.iterdir() if each.name.isdigit()]
    found = [each for each in versions if (each / ENGINE_FILE).is_file()]
    if not found:
        return None
    return Path(max(found, key=lambda each: int(each.name)).name, ENGINE_FILE)


def _engine(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise TuneError(f"{path}: {error}", Status.UNREACHABLE) from error
    if not isinstance(found, dict):
        raise TuneError(f"{path}: not an object of JSON", Status.UNREACHABLE)
    return found
