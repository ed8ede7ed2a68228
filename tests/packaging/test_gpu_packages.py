"""What travels to a GPU machine without a network, and how its tests are started there."""

from __future__ import annotations

import json
import sys
from importlib.metadata import EntryPoint, distributions
from pathlib import Path

import pytest

from gpu import __main__ as run
from gpu import pack
from gpu.report import Result, markdown


def test_all_that_the_server_needs_is_packed_but_what_is_left_out() -> None:
    needed = pack.requirements(["numpy"])
    assert {"pytest", "tritonclient[grpc]"} <= set(needed)
    assert set(pack.project()["dependencies"]) - set(needed) == {"numpy>=1.26"}


def test_platform_of_wheels_becomes_that_of_uv() -> None:
    assert pack.target_of("manylinux_2_28_x86_64") == "x86_64-manylinux_2_28"
    with pytest.raises(SystemExit, match="manylinux_2_28_x86_64, not 'linux'"):
        pack.target_of("linux")


def test_size_above_the_limit_is_refused_with_what_takes_most(tmp_path: Path) -> None:
    (tmp_path / "large").mkdir()
    (tmp_path / "large" / "library.so").write_bytes(bytes(2 << 20))
    assert "2.0 MiB of 2" in pack.check_size(tmp_path, 2)
    with pytest.raises(SystemExit, match=r"2\.0 MiB of 1, too much .* large 2\.0"):
        pack.check_size(tmp_path, 1)


def test_programs_and_sources_do_not_travel(tmp_path: Path) -> None:
    for name in ("bin/pytest", "uvloop/loop.pyx", "uvloop/loop.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    pack.slim(tmp_path)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["loop.py"]


def test_backends_of_the_working_tree_are_announced(tmp_path: Path) -> None:
    pack.announce_server(tmp_path)
    [found] = distributions(path=[str(tmp_path)])
    backend = EntryPoint("pytorch", "penstock_backends.pytorch:PyTorchBackend", "penstock.backends")
    assert backend in found.entry_points


def _packed(folder: Path, python: str) -> Path:
    manifest = folder / pack.MANIFEST
    manifest.write_text(json.dumps({"python": python}))
    return manifest


def test_packages_come_before_those_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/before")
    mine = f"{sys.version_info.major}.{sys.version_info.minor}"
    first, *others = run.environment(_packed(tmp_path, mine))["PYTHONPATH"].split(":")
    assert (first, others[-1]) == (str(tmp_path), "/before")
    assert str(pack.ROOT / "backends") in others


def test_packages_for_another_python_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"is for Python 3\.1, and this is .*: pack it anew"):
        run.environment(_packed(tmp_path, "3.1"))


def test_without_packages_the_environment_is_that_of_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/mine")
    assert run.environment(tmp_path / pack.MANIFEST)["PYTHONPATH"] == "/mine"


def test_report_says_what_was_measured_or_why_not() -> None:
    results = [
        Result("a", "answers", "passed", 1.0, "", {"rate": "5"}),
        Result("b", "is fast", "skipped", 0.0, "needs a|b"),
    ]
    table = markdown({"gpu": "H200"}, results).splitlines()
    assert table[0] == "gpu: H200"
    assert table[4:] == ["| answers | passed | rate 5 |", r"| is fast | skipped | needs a\|b |"]
