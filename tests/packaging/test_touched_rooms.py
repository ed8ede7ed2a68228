"""Tests that `make quick` runs: of the rooms that a change touches, and of those above."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import grimp
import pytest

from touched_rooms import PACKAGES, changed_files, paths_of


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph(*PACKAGES)


def test_rooms_above_are_those_that_import_the_module(graph: grimp.ImportGraph) -> None:
    """Of these, the tests that reach it by what they import, or by a server that they run."""
    found = paths_of(["service/penstock/http2/hpack.py"], graph)
    reach = {"rpc/test_uploads.py", "perf/test_failures.py", "cli/test_commands.py"}
    assert {"tests/http2", *(f"tests/{name}" for name in reach)} <= found
    assert not found & {"tests", "tests/rpc", "tests/rpc/test_codec.py"}
    assert not [path for path in found if path.startswith(("tests/http1", "tests/models"))]


def test_a_room_of_rooms_has_the_tests_that_reach_the_module(graph: grimp.ImportGraph) -> None:
    found = paths_of(["service/penstock/models/loading/lifecycle.py"], graph)
    assert "tests/models/loading" in found
    assert "tests/models" not in found
    assert "tests/in_process/test_server.py" in found


def test_a_module_of_the_client_package_has_tests_that_run_commands(
    graph: grimp.ImportGraph,
) -> None:
    found = paths_of(["client/penstock_client/client/policy.py"], graph)
    assert {"tests/client", "tests/commands/test_completion.py"} <= found
    assert not [path for path in found if path.startswith("tests/cli/")]


def test_a_backend_has_nothing_above_it(graph: grimp.ImportGraph) -> None:
    files = ["backends/penstock_backends/vllm/__init__.py"]
    assert paths_of(files, graph) == {"tests/backends/vllm"}


def test_a_module_that_is_no_package_has_its_own_tests(graph: grimp.ImportGraph) -> None:
    assert "tests/test_model.py" in paths_of(["service/penstock/model.py"], graph)


@pytest.mark.parametrize(
    ("file", "folders"),
    [
        ("tests/http2/test_hostile.py", {"tests/http2"}),
        ("tests/test_model.py", {"tests/test_model.py"}),
        ("tests/fakes/__init__.py", {"tests"}),
        ("loadtest/hostile.py", {"tests/load_tools"}),
        ("docs/batching.md", set()),
        ("service/penstock/removed/long_ago.py", set()),
    ],
)
def test_other_files_have_the_tests_of_their_folder(
    graph: grimp.ImportGraph, file: str, folders: set[str]
) -> None:
    assert paths_of([file], graph) == folders


@pytest.mark.needs("git", "" if shutil.which("git") else "there is no git here")
def test_a_tree_without_changes_is_asked_for_its_last_commit(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        names = ("-c", "user.name=x", "-c", "user.email=x@x")
        subprocess.run(["git", *names, *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    for name in ("first", "second"):
        (tmp_path / name).touch()
        git("add", name)
        git("commit", "-m", name)
    assert changed_files(tmp_path) == ["second"]
    (tmp_path / "third").touch()
    (tmp_path / "first").write_text("changed")
    assert changed_files(tmp_path) == ["first", "third"]
