"""Which compiled build `make serve` takes: one of these very sources, for this Python, or none."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from deploy import compiled_build

_TAG = sys.implementation.cache_tag.replace("cpython-", "cp")
_WHEEL = f"penstock-1.0-{_TAG}-{_TAG}-linux_{os.uname().machine}.whl"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of all clones."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository with a module of each package."""
    return _clone(tmp_path / "clone")


def _clone(root: Path) -> Path:
    for package in ("service/penstock", "backends/penstock_backends"):
        (root / package).mkdir(parents=True)
        (root / package / "__init__.py").write_text("made = 1\n")
    for name in ("hatch_build.py", "pyproject.toml"):
        (root / name).touch()
    return root


def _compiled(folder: Path, name: str = _WHEEL) -> Path:
    """A folder with a wheel of this name."""
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / name, "w") as wheel:
        wheel.writestr("penstock/__init__.py", "made = 2\n")
    return folder


def test_a_build_is_found_for_the_sources_it_was_made_from(clone: Path, tmp_path: Path) -> None:
    compiled_build.keep(compiled_build.key(clone), _compiled(tmp_path / "dist"), clone)
    found = compiled_build.find(clone)
    assert found is not None
    assert (found / "penstock/__init__.py").read_text() == "made = 2\n"


def test_another_clone_of_the_same_sources_finds_it(clone: Path, tmp_path: Path) -> None:
    compiled_build.keep(compiled_build.key(clone), _compiled(tmp_path / "dist"), clone)
    assert compiled_build.find(_clone(tmp_path / "other")) == compiled_build.find(clone)


@pytest.mark.parametrize(
    "changed",
    ["service/penstock/__init__.py", "service/penstock/new.py", "hatch_build.py", "pyproject.toml"],
)
def test_none_is_found_for_changed_sources(clone: Path, tmp_path: Path, changed: str) -> None:
    compiled_build.keep(compiled_build.key(clone), _compiled(tmp_path / "dist"), clone)
    (clone / changed).write_text("made = 3\n")
    assert compiled_build.find(clone) is None


def test_what_python_caches_is_no_change(clone: Path) -> None:
    before = compiled_build.key(clone)
    (clone / "service/penstock/__pycache__").mkdir()
    (clone / "service/penstock/__pycache__/one.pyc").touch()
    assert compiled_build.key(clone) == before


def test_sources_changed_while_they_were_compiled_are_not_kept(clone: Path, tmp_path: Path) -> None:
    before = compiled_build.key(clone)
    (clone / "service/penstock/__init__.py").write_text("made = 3\n")
    assert "were changed" in compiled_build.keep(before, _compiled(tmp_path / "dist"), clone)
    assert compiled_build.find(clone) is None


@pytest.mark.parametrize(
    "name", ["penstock-1.0-py3-none-any.whl", "penstock-1.0-cp399-cp399-linux_x86_64.whl"]
)
def test_neither_a_pure_wheel_nor_one_of_another_python_is_kept(
    clone: Path, tmp_path: Path, name: str
) -> None:
    told = compiled_build.keep(compiled_build.key(clone), _compiled(tmp_path / "dist", name), clone)
    assert told.endswith("has no compiled wheel for this Python")
    assert compiled_build.find(clone) is None


def test_the_clone_keeps_it_where_no_cache_can_be_written(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    compiled_build.keep(compiled_build.key(clone), _compiled(tmp_path / "dist"), clone)
    found = compiled_build.find(clone)
    assert found is not None
    assert found.is_relative_to(clone / "build")


def test_only_the_newest_are_kept(clone: Path, tmp_path: Path, cache: Path) -> None:
    wheels = _compiled(tmp_path / "dist")
    for number in range(6):
        (clone / "pyproject.toml").write_text(f"number = {number}\n")
        compiled_build.keep(compiled_build.key(clone), wheels, clone)
    assert compiled_build.find(clone) is not None
    assert len(list((cache / "penstock/compiled").iterdir())) == 4


def test_a_build_comes_before_the_sources_of_an_editable_installation(
    clone: Path, tmp_path: Path
) -> None:
    """`make serve` names its folder in PYTHONPATH."""
    compiled_build.keep(compiled_build.key(clone), _compiled(tmp_path / "dist"), clone)
    found = compiled_build.find(clone)
    code = "import penstock; print(penstock.__file__)"
    told = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(found)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.strip() == f"{found}/penstock/__init__.py"


def test_serving_never_compiles() -> None:
    makefile = (compiled_build.ROOT / "Makefile").read_text()
    recipe = makefile.partition("\nserve:")[2].partition("\n\n")[0]
    assert "compiled_build.py find" in recipe
    assert "PENSTOCK_COMPILE" not in recipe


_IMPORT = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from deploy.compiled_build import import_all
print(*import_all(Path(sys.argv[1])), sep="\\n", end="")
"""


def _not_imported(clone: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", _IMPORT, clone / "service"],
        cwd=compiled_build.ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_a_module_that_cannot_be_imported_is_named(clone: Path) -> None:
    folder = clone / "service" / "penstock"
    (folder / "torn.py").write_text("class Flag(bool): ...\n")
    (folder / "lost.py").write_text("import penstock.gone\n")
    assert _not_imported(clone).splitlines() == [
        "penstock.lost cannot be imported: ModuleNotFoundError: No module named 'penstock.gone'",
        "penstock.torn cannot be imported: TypeError: type 'bool' is not an acceptable base type",
    ]


def test_engines_that_are_not_installed_programs_and_data_are_no_failures(clone: Path) -> None:
    folder = clone / "service" / "penstock"
    (folder / "engine.py").write_text("import engine_that_is_nowhere\n")
    (folder / "__main__.py").write_text("raise SystemExit(3)\n")
    (folder / "models").mkdir()
    (folder / "models" / "model.py").write_text("import penstock.gone\n")
    assert _not_imported(clone) == ""
