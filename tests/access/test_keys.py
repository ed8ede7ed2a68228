"""`penstock keys`: keys of callers in a policy file."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from access.policies import ALICE, BOB, POLICY, hashed
from penstock import cli
from penstock.access.policy import key_hash
from penstock.access.policy_file import parse_policy, read_policy

COMMENTED = f"""# The policy.
[callers.alice]  # of research
keys = [
    {hashed(ALICE)[1:-1]},  # the laptop's
]
groups = ["research"]
[callers."b.o b"]
[[rules]]
callers = ["*"]
calls = ["*"]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "policy.toml"
    path.write_text(POLICY)
    path.chmod(0o640)
    return path


def keys(file: Path, *arguments: str) -> int:
    return cli.main(["keys", *arguments, f"--access-policy={file}"])


def holder(file: Path, key: str) -> str:
    found = read_policy(file).holder(key_hash(key))
    return "" if found is None else found.name


@pytest.mark.parametrize("name", ["bob", "carol", "b.o b", 'quo"ted'])
def test_a_new_key_is_printed_and_its_hash_is_in_the_file(
    file: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert keys(file, "new", name) == 0
    key = capsys.readouterr().out.strip()
    assert len(key) > 40
    assert holder(file, key) == name
    assert key not in file.read_text()
    assert (holder(file, ALICE), holder(file, BOB)) == ("alice", "bob")
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


@pytest.mark.parametrize("name", ["alice", "b.o b"])
def test_comments_and_what_is_said_stay(
    file: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(COMMENTED)
    assert keys(file, "new", name) == 0
    assert holder(file, capsys.readouterr().out.strip()) == name
    assert holder(file, ALICE) == "alice"
    for comment in ("# The policy.", "# of research", "# the laptop's"):
        assert comment in file.read_text()


def test_a_caller_has_two_keys_at_most(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = file.read_text()
    assert keys(file, "new", "alice") == 1
    assert "'alice' has 2 keys already" in capsys.readouterr().err
    assert file.read_text() == before


def test_a_revoked_key_is_gone(file: Path) -> None:
    assert keys(file, "revoke", "bob") == 0
    assert (holder(file, BOB), holder(file, ALICE)) == ("", "alice")
    assert keys(file, "revoke", "bob") == 1


def test_one_of_two_keys_is_named_by_its_hash(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert keys(file, "revoke", "alice") == 1
    assert key_hash(ALICE)[:12] in capsys.readouterr().err
    assert keys(file, "revoke", "alice", key_hash(ALICE)[:8]) == 0
    assert (holder(file, ALICE), holder(file, "new-key-of-alice")) == ("", "alice")


def test_a_key_between_comments_is_revoked(file: Path) -> None:
    file.write_text(COMMENTED)
    assert keys(file, "revoke", "alice") == 0
    assert holder(file, ALICE) == ""
    assert "# of research" in file.read_text()


def test_keys_are_listed_by_their_hashes(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert keys(file, "list") == 0
    told = capsys.readouterr().out
    assert f"bob    {key_hash(BOB)[:12]}\n" in told
    assert key_hash(BOB) not in told


def test_the_first_key_makes_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "policy.toml"
    assert keys(file, "new", "alice") == 0
    told = capsys.readouterr()
    assert "a server would refuse the file as it is" in told.err
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    rule = '[[rules]]\ncallers = ["alice"]\ncalls = ["*"]\n'
    found = parse_policy(file.read_text() + rule).holder(key_hash(told.out.strip()))
    assert found is not None


def test_the_file_behind_a_link_is_written(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    link = file.parent / "link.toml"
    link.symlink_to(file)
    assert keys(link, "new", "carol") == 0
    assert link.is_symlink()
    assert holder(file, capsys.readouterr().out.strip()) == "carol"


@pytest.mark.parametrize(
    "text",
    [
        "callers = { bob = { keys = [] } }",
        "[callers]\nbob.keys = []",
        "[callers.bob]\nkeys = []\n[callers.bob.more]",
        "rules = [",
    ],
)
def test_what_cannot_be_edited_is_left_as_it_is(
    file: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(text)
    assert keys(file, "new", "bob") == 1
    assert file.read_text() == text
    told = capsys.readouterr()
    assert "policy.toml" in told.err
    assert not told.out


@pytest.mark.parametrize(
    "arguments", [["new"], ["revoke"], ["list", "a"], ["new", "a", "b"], ["make", "a"]]
)
def test_a_wrong_command_line_ends_with_its_usage(file: Path, arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        keys(file, *arguments)
    assert ended.value.code == 2


@pytest.mark.parametrize("name", ["anyone", "group:a", "a*", "a\nb"])
def test_names_that_rules_could_not_mean_are_refused(file: Path, name: str) -> None:
    assert keys(file, "new", name) == 1
