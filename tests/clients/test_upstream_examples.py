"""Triton's own client examples, unchanged, against the models of `penstock demo --examples`.

    git clone https://github.com/triton-inference-server/client
    PENSTOCK_TRITON_EXAMPLES=client/src/python/examples pytest -rs tests/clients

They are not part of this project; without that folder these tests are left out.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.serving import Served, serving
from penstock.demo.colour_classifier import COLOURS

_FOLDER = os.environ.get("PENSTOCK_TRITON_EXAMPLES", "")
_FILES = {path.name for path in Path(_FOLDER).glob("*.py")} if _FOLDER else set[str]()

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs(
        "Triton's client examples",
        "" if _FILES else "PENSTOCK_TRITON_EXAMPLES does not name a folder of Triton's examples",
    ),
]

_KINDS = ("grpc", "grpc_aio", "http", "http_aio")
# What comes after the `simple_KIND_` of a file, and the options that it is started with.
_SIMPLE = (
    ("infer_client.py", ()),
    ("async_infer_client.py", ()),
    ("string_infer_client.py", ()),
    ("health_metadata.py", ()),
    ("keepalive_client.py", ()),
    ("custom_args_client.py", ()),
    ("shm_client.py", ()),
    ("shm_string_client.py", ()),
    ("sequence_sync_infer_client.py", ()),
    ("sequence_sync_infer_client.py", ("-d",)),
    ("sequence_stream_infer_client.py", ()),
    ("sequence_stream_infer_client.py", ("-d",)),
    ("custom_repeat.py", ()),
)
_OTHERS = (
    "grpc_client.py",
    "grpc_explicit_byte_content_client.py",
    "grpc_explicit_int8_content_client.py",
    "grpc_explicit_int_content_client.py",
)
_IMAGES = (
    ("image_client.py", "grpc", ()),
    ("image_client.py", "grpc", ("--async",)),
    ("image_client.py", "grpc", ("--streaming",)),
    ("image_client.py", "http", ()),
    ("image_client.py", "http", ("--async",)),
    ("grpc_image_client.py", "", ()),
    ("ensemble_image_client.py", "grpc", ()),
    ("ensemble_image_client.py", "http", ()),
)


def run(name: str, *arguments: str) -> str:
    """What an example prints, which has to end well."""
    if name not in _FILES:
        pytest.skip(f"there is no {name} in {_FOLDER}")
    done = subprocess.run(
        [sys.executable, str(Path(_FOLDER) / name), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.contract("CC-12")
@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize(("rest", "options"), _SIMPLE)
def test_simple_examples(server: Served, kind: str, rest: str, options: tuple[str, ...]) -> None:
    address = server.http if kind.startswith("http") else server.grpc
    printed = run(f"simple_{kind}_{rest}", "-u", address, *options)
    assert "PASS" in printed or rest == "health_metadata.py"


@pytest.mark.contract("CC-11")
@pytest.mark.parametrize("name", _OTHERS)
def test_examples_of_generated_stubs(server: Served, name: str) -> None:
    assert "PASS" in run(name, "-u", server.grpc)


@pytest.fixture(scope="module")
def picture(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The file of an image that is green."""
    image = pytest.importorskip("PIL.Image")
    path = tmp_path_factory.mktemp("images") / "green.png"
    image.new("RGB", (40, 30), (10, 240, 20)).save(path)
    return str(path)


@pytest.mark.contract("CC-10")
@pytest.mark.parametrize("model", ["densenet_onnx", "inception_onnx"])
@pytest.mark.parametrize(("name", "protocol", "options"), _IMAGES)
def test_image_examples(
    server: Served, picture: str, model: str, name: str, protocol: str, options: tuple[str, ...]
) -> None:
    address = server.http if protocol == "http" else server.grpc
    arguments = ["-u", address, "-c", "2", *options, *(("-i", protocol) if protocol else ())]
    if not name.startswith("ensemble"):
        arguments += ["-m", model, "-s", "INCEPTION"]
    printed = run(name, *arguments, picture)
    assert "PASS" in printed
    assert f"({list(COLOURS).index('GREEN')}) = GREEN" in printed


@pytest.fixture(scope="module")
def controlled(repositories: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server whose models clients load and unload."""
    log = tmp_path_factory.mktemp("controlled") / "log"
    explicit = "--model-control-mode=explicit"
    with serving(repositories / "model_repository", log, explicit) as ready:
        yield ready


@pytest.mark.contract("CC-12")
@pytest.mark.parametrize("kind", _KINDS)
def test_model_control_examples(controlled: Served, kind: str) -> None:
    address = controlled.http if kind.startswith("http") else controlled.grpc
    assert "PASS" in run(f"simple_{kind}_model_control.py", "-u", address)
