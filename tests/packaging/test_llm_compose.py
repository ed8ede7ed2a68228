"""The container of a language model, `deploy/llm`: as far as can be seen without a container."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from cli.reading import settings_of
from penstock.gateway.openai.routes import openai_routes
from penstock.settings import HttpSettings, OpenAiSettings
from programs.places import find

_ROOT = Path(__file__).parents[2]
_FOLDER = _ROOT / "deploy" / "llm"
_IMAGE = (_ROOT / "Dockerfile").read_text()
_CHECKER = find("compose-spec")


def _service(name: str = "compose.yaml") -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((_FOLDER / name).read_text())["services"]["penstock"]
    return found


def _extras() -> dict[str, list[str]]:
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]
    return dict(project["optional-dependencies"])


@pytest.mark.needs(
    "compose-spec", "" if _CHECKER else "there is no compose-spec: `make tools` says why"
)
@pytest.mark.parametrize("names", [["compose.yaml"], ["compose.yaml", "compose.gpu.yaml"]])
def test_files_fit_the_specification(names: list[str]) -> None:
    command = [_CHECKER, "--format=json", *names]
    done = subprocess.run(command, cwd=_FOLDER, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (port,) = json.loads(done.stdout)["services"]["penstock"]["ports"]
    assert (port["host_ip"], port["target"]) == ("127.0.0.1", 8000)


def test_image_is_built_with_extras_that_there_are() -> None:
    default = re.findall(r"^ARG ENGINE=(.+)$", _IMAGE, re.MULTILINE)
    assert default == ["onnx,openvino,openai"]
    chosen = [_service(name)["build"]["args"]["ENGINE"] for name in _files()]
    assert {*",".join([*default, *chosen]).split(",")} <= _extras().keys()
    assert "openai" in _extras()["demo"][0]


def _files() -> list[str]:
    return sorted(path.name for path in _FOLDER.glob("*.yaml"))


@pytest.mark.contract("SD-01")
def test_command_is_one_of_the_server() -> None:
    shell, _, _, program, *arguments = _service()["command"]
    settings = settings_of(*arguments)
    assert (shell, program) == ("sh", "penstock")
    assert settings.openai.enabled


@pytest.mark.contract("SD-01")
def test_health_is_that_of_the_api() -> None:
    service = _service()
    matched = re.fullmatch(r"http://127\.0\.0\.1:(\d+)(/.+)", service["environment"]["HEALTH_URL"])
    assert matched is not None
    port = settings_of(*service["command"][4:]).http.port
    server: Any = SimpleNamespace(access=None)
    bodies: Any = None
    routes = openai_routes(server, HttpSettings(), OpenAiSettings(), bodies)
    assert int(matched[1]) == port
    assert any(re.fullmatch(route.path, matched[2]) for route in routes)
    assert "test" not in service["healthcheck"]
    assert re.search(r"HEALTHCHECK .*\\\n +CMD .*HEALTH_URL", _IMAGE)


@pytest.mark.contract("SD-01")
@pytest.mark.parametrize(
    ("models", "named", "done"),
    [
        ([], "", "penstock demo {folder}\npenstock serve {folder} --http-port=8000\n"),
        (["mine"], "", "penstock serve {folder} --http-port=8000\n"),
        ([], "hf://a/b", "penstock serve hf://a/b --http-port=8000\n"),
        (["mine"], "hf://a/b", "penstock serve hf://a/b --http-port=8000\n"),
    ],
)
def test_demo_goes_into_an_empty_volume_only(
    tmp_path: Path, models: list[str], named: str, done: str
) -> None:
    folder, programs = tmp_path / "models", tmp_path / "bin"
    folder.mkdir()
    programs.mkdir()
    for model in models:
        (folder / model).mkdir()
    (programs / "penstock").write_text('#!/bin/sh\necho penstock "$@"\n')
    (programs / "penstock").chmod(0o755)
    shell, option, script, program, *_ = _service()["command"]
    script = script.replace("$$", "$").replace("/models", str(folder))
    told = subprocess.run(
        [shell, option, script, program, "--http-port=8000"],
        env={"PATH": f"{programs}:/usr/bin:/bin", "MODEL": named},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout == done.format(folder=folder)
