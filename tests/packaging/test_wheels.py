"""`make wheels`: its parts that neither compile nor download. The rest it proves when it runs."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from hashlib import sha256
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
from packaging.tags import parse_tag
from packaging.utils import parse_wheel_filename

from deploy.wheels import pythons
from deploy.wheels.pythons import (
    ROOT,
    Artifact,
    NotHereError,
    Unpacked,
    foreign,
    interpreter,
    unpack_artifact,
)
from deploy.wheels.release import GLIBC, PYTHONS, Kind, differing, snapshot

_FOR_ONE_PYTHON = """
import sys

def newer() -> bool:
    if sys.version_info >= (3, 12):
        return True
    return False
"""


@pytest.fixture(scope="module")
def hook() -> ModuleType:
    """The build hook of both distributions."""
    spec = spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _wheel(file: Path, **members: str) -> Path:
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return file


def test_a_wheel_for_another_processor_has_its_tag_and_names(
    hook: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_TARGET", "aarch64-linux-gnu.2.17")
    target = hook.asked_target()
    (tag,) = parse_tag(target.tag)
    assert (tag.platform, tag.interpreter) == ("linux_aarch64", tag.abi)
    assert target.suffix == f".{sys.implementation.cache_tag}-aarch64-linux-gnu.so"


def test_a_wheel_is_not_compiled_for_a_processor_without_its_headers(
    hook: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PENSTOCK_COMPILE", "1")
    monkeypatch.setenv("PENSTOCK_TARGET", "aarch64-linux-gnu.2.17")
    monkeypatch.setenv("PENSTOCK_HEADERS", str(tmp_path))
    made = hook.CompiledModules(str(ROOT), {"library": "penstock._compiled"}, None, None, "", "")
    with pytest.raises(SystemExit, match=f"needs the headers of Python, and {tmp_path} has none"):
        made.initialize("standard", {})


def test_only_what_is_for_a_named_processor_needs_the_compiler_of_the_index(
    hook: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_COMPILE", "1")
    made = hook.CompiledModules(str(ROOT), {}, None, None, "", "wheel")
    assert not any(each.startswith("ziglang") for each in made.dependencies())
    monkeypatch.setenv("PENSTOCK_TARGET", "x86_64-linux-gnu.2.17")
    assert any(each.startswith("ziglang==") for each in made.dependencies())


def test_objects_are_kept_for_the_compiler_wherever_it_is_installed(
    hook: ModuleType, tmp_path: Path
) -> None:
    """Each build installs it into another folder, of which it tells."""

    def told(folder: Path, version: str) -> bytes:
        folder.mkdir()
        compiler = folder / "zig"
        compiler.write_text(f"#!/bin/sh\necho clang {version}\necho InstalledDir: {folder}\n")
        compiler.chmod(0o755)
        options = {"macros": [], "debug": 0, "extra_postargs": [], "include_dirs": []}
        common: bytes = hook._common([str(compiler), "cc"], options)
        return common

    one = told(tmp_path / "one", "21")
    assert told(tmp_path / "two", "21") == one
    assert told(tmp_path / "three", "22") != one


@pytest.mark.slow
def test_code_for_one_python_is_translated_for_another(hook: ModuleType, tmp_path: Path) -> None:
    """mypyc stops at whatever mypy has to say, and what it says differs by version."""
    (tmp_path / "module.py").write_text(_FOR_ONE_PYTHON)
    asked = ["--config-file", str(ROOT / "pyproject.toml"), "--python-version", PYTHONS[-1]]
    asked += ["--cache-dir", str(tmp_path / "cache"), *hook._OPTIONS, "module.py"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *asked], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_tools_that_make_wheels_are_pinned(hook: ModuleType) -> None:
    """The same versions make the same bytes."""
    pinned = (ROOT / "deploy/wheels/constraints.txt").read_text().splitlines()
    names = {line.partition("==")[0] for line in pinned if "==" in line}
    assert {"hatchling", "mypy", "numpy", "setuptools", "ziglang"} <= names
    assert hook._ZIG in {line.partition(" ")[0] for line in pinned}


def test_the_name_that_auditwheel_has_to_agree_to_is_manylinux() -> None:
    policy = Kind("3.11", "x86_64").policy
    assert GLIBC == "2.17"
    name = f"penstock-1-cp311-cp311-{policy}.whl"
    assert {tag.platform for tag in parse_wheel_filename(name)[3]} == {"manylinux_2_17_x86_64"}


def test_members_that_differ_are_named(tmp_path: Path) -> None:
    one = _wheel(tmp_path / "one.whl", same="1", other="2", gone="3")
    two = _wheel(tmp_path / "two.whl", same="1", other="4")
    assert differing(one, one) == []
    assert differing(one, two) == ["gone", "other"]


def test_wheels_whose_members_are_the_same_may_differ_in_order(tmp_path: Path) -> None:
    one = _wheel(tmp_path / "one.whl", a="1", b="2")
    two = _wheel(tmp_path / "two.whl", b="2", a="1")
    assert differing(one, two) == ["order, dates or modes"]


@pytest.mark.needs("git", "" if shutil.which("git") else "there is no git here")
def test_a_snapshot_has_what_git_has_and_may_get(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "folder").mkdir(parents=True)
    for name in ("kept", "deleted", "ignored", "folder/new"):
        (root / name).write_text(name)
    (root / ".gitignore").write_text("ignored\n")
    for command in ("init --quiet", "add kept deleted"):
        subprocess.run(["git", *command.split()], cwd=root, check=True)
    (root / "deleted").unlink()
    (root / "kept").chmod(0o777)
    copied = snapshot(tmp_path / "copy", root)
    assert sorted(
        str(file.relative_to(copied)) for file in copied.rglob("*") if file.is_file()
    ) == [
        ".gitignore",
        "folder/new",
        "kept",
    ]
    assert (copied / "kept").stat().st_mode & 0o777 == 0o755


def test_headers_that_differ_by_processor_replace_the_common_ones(tmp_path: Path) -> None:
    common = tmp_path / "root/usr/include/python3.11"
    own = tmp_path / "root/usr/include/aarch64-linux-gnu/python3.11"
    for folder, content in ((common, "either"), (own, "own")):
        folder.mkdir(parents=True)
        (folder / "pyconfig.h").write_text(content)
    (common / "Python.h").touch()
    made = Unpacked(tmp_path / "root", "3.11", "aarch64").headers(tmp_path / "headers")
    assert (made / "pyconfig.h").read_text() == "own"
    assert (made / "Python.h").exists()


def test_headers_that_lie_in_one_folder_stay_there(tmp_path: Path) -> None:
    (tmp_path / "root/usr/include/python3.12").mkdir(parents=True)
    made = Unpacked(tmp_path / "root", "3.12", "aarch64").headers(tmp_path / "headers")
    assert made == tmp_path / "root/usr/include/python3.12"


def test_a_python_of_maven_is_unpacked_as_debian_has_its_own(tmp_path: Path) -> None:
    members = ("a/arm64/bin/python3.12", "a/arm64/include/python3.12/Python.h", "a/arm64/libx.so")
    others = ("a/arm64/python3.12", "META-INF/MANIFEST.MF")
    archive = _wheel(tmp_path / "a.jar", **dict.fromkeys((*members, *others), ""))
    artifact = Artifact("g:a:1", sha256(archive.read_bytes()).hexdigest(), "a/arm64")
    unpack_artifact(archive, artifact, tmp_path / "root/usr")
    unpacked = Unpacked(tmp_path / "root", "3.12", "aarch64")
    assert unpacked.python.stat().st_mode & 0o777 == 0o755
    assert (unpacked.headers(tmp_path / "headers") / "Python.h").exists()
    assert sorted(file.name for file in (tmp_path / "root/usr/lib").iterdir()) == ["libx.so"]
    assert {file.name for file in (tmp_path / "root/usr").iterdir()} == {"bin", "include", "lib"}


def test_an_archive_that_is_not_the_one_that_is_meant_is_not_unpacked(tmp_path: Path) -> None:
    archive = _wheel(tmp_path / "a.jar", **{"a/bin/python3.12": "another"})
    with pytest.raises(NotHereError, match="g:a:1 is not the archive"):
        unpack_artifact(archive, Artifact("g:a:1", "0" * 64, "a"), tmp_path / "usr")
    assert not (tmp_path / "usr").exists()


def test_without_maven_it_is_said_what_could_be_had_by_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotHereError, match=r"no mvn here, by which Python 3\.12 could be had"):
        foreign("3.12", "aarch64")


def test_of_pyenv_the_newest_release_is_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Neither one that is not released yet, nor a free-threaded one, whose wheels are others."""
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    for name in ("3.13.9", "3.13.10", "3.13.10t", "3.13.11rc1", "3.1.99"):
        folder = tmp_path / "versions" / name / "bin"
        folder.mkdir(parents=True)
        (folder / "python3.13").touch()
    assert pythons._of_pyenv("3.13") == tmp_path / "versions/3.13.10/bin/python3.13"
    with pytest.raises(NotHereError, match="pyenv has no Python"):
        pythons._of_pyenv("3.14")


@pytest.mark.slow
def test_a_python_that_cannot_be_had_is_left_out_with_all_reasons() -> None:
    with pytest.raises(NotHereError) as told:
        interpreter("3.99")
    assert "pyenv has no Python 3.99" in str(told.value)
    assert "no release of Debian has Python 3.99" in str(told.value)


def test_wheels_are_built_for_what_the_package_says_it_runs_on() -> None:
    assert PYTHONS[0] == "3.11"
    assert 'requires-python = ">=3.11"' in (ROOT / "pyproject.toml").read_text()
    assert "make wheels" in (ROOT / "docs/wheels.md").read_text()
