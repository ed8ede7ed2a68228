"""The text of a policy file after a key was added or revoked, letter by letter."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from threading import Thread

import pytest

from access.policies import ALICE, BOB, hashed
from penstock.access.key_file import new_key, read_keys, revoke_key
from penstock.access.policy import key_hash
from penstock.core.errors import ConfigError

OLD = hashed(ALICE)[1:-1]
OTHER = f"[callers.other]\nkeys = {hashed(BOB)}\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "policy.toml"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "[callers.a]\nkeys = [NEW]\n"),
        (f"{OTHER}\n", f"{OTHER}\n[callers.a]\nkeys = [NEW]\n"),
        (OTHER, f"{OTHER}\n[callers.a]\nkeys = [NEW]\n"),
        (OTHER[:-1], f"{OTHER}\n[callers.a]\nkeys = [NEW]\n"),
        ("[callers.a]\nkeys = []\n", "[callers.a]\nkeys = [NEW]\n"),
        (f"[callers.a]\nkeys = [{OLD}]\n{OTHER}", f"[callers.a]\nkeys = [NEW, {OLD}]\n{OTHER}"),
        (f"[callers.a]\n{OTHER}", f"[callers.a]\nkeys = [NEW]\n{OTHER}"),
        (f"{OTHER}[callers.a]", f"{OTHER}[callers.a]\nkeys = [NEW]"),
        (f"{OTHER} [ callers . 'a' ] # a\n", f"{OTHER} [ callers . 'a' ] # a\nkeys = [NEW]\n"),
    ],
)
def test_a_new_key_is_added_where_its_caller_is(file: Path, before: str, after: str) -> None:
    file.write_text(before)
    key = new_key(file, "a")
    assert file.read_text() == after.replace("NEW", f'"sha256:{key_hash(key)}"')
    assert key.startswith("psk_")
    assert len(key) == 4 + 43  # 32 bytes in Base64


@pytest.mark.parametrize("spelled", ['"a b"', "'a b'"])
def test_a_name_may_be_spelled_in_either_quotes(file: Path, spelled: str) -> None:
    file.write_text(f"[callers.{spelled}]\n{OTHER}")
    key = new_key(file, "a b")
    new = f'"sha256:{key_hash(key)}"'
    assert file.read_text() == f"[callers.{spelled}]\nkeys = [{new}]\n{OTHER}"


@pytest.mark.parametrize(
    ("keys", "after"),
    [
        (f"[{OLD}]", "[]"),
        (f"[ {OLD} , ]", "[ ]"),
        (f"[{OLD.upper().replace('SHA', 'sha')}]", "[]"),
        (f"['{OLD[1:-1]}', {hashed('b')[1:-1]}]", hashed("b")),
        (f"[{hashed('b')[1:-1]}, {OLD}]", f"[{hashed('b')[1:-1]}, ]"),
    ],
)
@pytest.mark.parametrize("prefix", ["", "sha256:"])
def test_a_revoked_key_is_taken_from_its_caller(
    file: Path, keys: str, after: str, prefix: str
) -> None:
    file.write_text(f"{OTHER}[callers.a]\nkeys = {keys}\ngroups = []\n# {OLD}")
    assert revoke_key(file, "a", prefix + key_hash(ALICE)[:6]) == key_hash(ALICE)
    assert file.read_text() == f"{OTHER}[callers.a]\nkeys = {after}\ngroups = []\n# {OLD}"


def test_which_key_is_revoked_must_be_said(file: Path) -> None:
    file.write_text(f"[callers.a]\nkeys = {hashed(ALICE, BOB)}\n[callers.b]\n")
    shown = f"{key_hash(ALICE)[:12]}, {key_hash(BOB)[:12]}"
    for name, beginning, told in (("a", "", shown), ("a", "x", shown), ("b", "", "none")):
        with pytest.raises(ConfigError) as refused:
            revoke_key(file, name, beginning)
        assert str(refused.value) == (
            f"say which key of '{name}', by the beginning of its hash: {told}"
        )
    with pytest.raises(ConfigError) as refused:
        revoke_key(file, "c")
    assert str(refused.value) == f"'{file}' has no caller 'c'"


def test_who_has_two_keys_is_told_to_revoke_one(file: Path) -> None:
    file.write_text(f"[callers.a]\nkeys = {hashed(ALICE, BOB)}\n")
    with pytest.raises(ConfigError) as refused:
        new_key(file, "a")
    assert str(refused.value) == "'a' has 2 keys already: revoke one of them first"


def test_what_must_be_edited_by_hand_is_said(file: Path) -> None:
    file.write_text(f"callers = {{ a = {{ keys = [{OLD}] }} }}")
    told = f"'{file}' is written in a form that this command does not edit; by hand,"
    with pytest.raises(ConfigError) as refused:
        new_key(file, "a")
    assert str(refused.value).startswith(f"{told} add to the keys of 'a': \"sha256:")
    with pytest.raises(ConfigError) as refused:
        revoke_key(file, "a")
    assert str(refused.value) == f"{told} take from the keys of 'a': {OLD}"


def test_a_file_that_cannot_be_read_or_written_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "none" / "policy.toml"
    with pytest.raises(ConfigError, match=f"^cannot read the access policy '{missing}': "):
        read_keys(missing)
    with pytest.raises(ConfigError) as refused:
        new_key(missing, "a")
    assert str(refused.value) == f"cannot write '{missing}': No such file or directory"
    long = tmp_path / f"{'p' * 250}.toml"  # beside which nothing longer has room
    with pytest.raises(ConfigError) as refused:
        new_key(long, "a")
    assert str(refused.value) == f"cannot write '{long}': File name too long"
    wrong = tmp_path / "wrong.toml"
    wrong.write_text("callers = 1")
    with pytest.raises(ConfigError) as refused:
        new_key(wrong, "a")
    assert str(refused.value) == f"the access policy '{wrong}': 'callers' must be a table"


def test_nothing_but_the_file_is_left(file: Path) -> None:
    new_key(file, "a")
    assert os.listdir(file.parent) == [file.name]


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away, which root may do")
def test_the_owner_of_a_file_stays(file: Path) -> None:
    file.write_text(OTHER)
    os.chown(file, 1234, 5678)
    new_key(file, "a")
    assert (file.stat().st_uid, file.stat().st_gid) == (1234, 5678)


def test_an_edit_waits_for_another_and_is_made_in_what_that_has_written(file: Path) -> None:
    file.write_text(OTHER)
    with file.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        edit = Thread(target=new_key, args=(file, "a"))
        edit.start()
        while _opened(file) < 2:  # the edit waits for this lock now, or will do so next
            os.sched_yield()
        new = file.with_suffix(".new")
        new.write_text("# by another\n" + OTHER)
        os.replace(new, file)
    edit.join()
    text = file.read_text()
    assert text.startswith(f"# by another\n{OTHER}\n[callers.a]\nkeys = [")


def _opened(file: Path) -> int:
    """How often this process has a file open."""
    count = 0
    for each in os.listdir("/proc/self/fd"):
        try:
            count += os.readlink(f"/proc/self/fd/{each}") == str(file)
        except OSError:  # closed meanwhile
            continue
    return count
