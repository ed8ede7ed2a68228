"""A policy file that changes while the server runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from access.policies import ALICE, POLICY, bearer, hashed, replaced
from penstock.access.watch import PolicyWatch
from penstock.core.errors import ConfigError, InferenceError
from penstock.settings import Feature

KEY = "a-new-key"
CHANGED = POLICY.replace("[callers.bob]\nkeys = [", f"[callers.bob]\nkeys = {hashed(KEY)[:-1]}, ")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "policy.toml"
    path.write_text(POLICY)
    return path


def caller(watch: PolicyWatch, key: str) -> str:
    try:
        return watch.gate.permit(bearer(key), Feature.HEALTH).caller
    except InferenceError:
        return "nobody"


async def test_a_changed_file_is_in_force(file: Path) -> None:
    watch = PolicyWatch.open(file)
    before = caller(watch, KEY)
    replaced(file, CHANGED)
    await watch.look()
    assert (before, caller(watch, KEY), watch.gate.reload_failures) == ("", "bob", 0)


async def test_a_link_to_another_file_is_a_change(tmp_path: Path) -> None:
    """As Kubernetes does it: a link to a folder is replaced, and the file's own stays."""
    for name, text in (("old", POLICY), ("new", CHANGED)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "policy.toml").write_text(text)
        os.utime(tmp_path / name / "policy.toml", (1, 1))
    (tmp_path / "data").symlink_to("old")
    (tmp_path / "policy.toml").symlink_to("data/policy.toml")
    watch = PolicyWatch.open(tmp_path / "policy.toml")
    (tmp_path / "next").symlink_to("new")
    os.replace(tmp_path / "next", tmp_path / "data")
    await watch.look()
    assert caller(watch, KEY) == "bob"


@pytest.mark.parametrize("text", ["", "rules = [", CHANGED.replace('"*"', '"everything"'), None])
async def test_a_wrong_file_leaves_the_old_one_in_force(
    file: Path, text: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    watch = PolicyWatch.open(file)
    replaced(file, text)
    for _ in range(3):
        await watch.look()
    assert caller(watch, ALICE) == "alice"
    assert watch.gate.reload_failures == 1
    (line,) = caplog.messages
    assert line.endswith("the policy before it stays in force")


async def test_a_file_that_is_right_again_is_in_force(file: Path) -> None:
    watch = PolicyWatch.open(file)
    replaced(file, "")
    await watch.look()
    replaced(file, CHANGED)
    await watch.look()
    assert caller(watch, KEY) == "bob"


def test_a_wrong_file_at_the_start_is_an_error(file: Path) -> None:
    file.write_text("")
    with pytest.raises(ConfigError):
        PolicyWatch.open(file)
