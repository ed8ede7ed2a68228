"""`penstock pull`, `list` and `remove`: what was fetched from elsewhere."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.hub import Hub, hub
from harness.object_store import ObjectStore, object_store
from penstock import cli

pytestmark = pytest.mark.slow


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ObjectStore]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    with object_store() as store:
        for name in ("a", "b"):
            store.put(f"{name}/config.pbtxt", 'backend: "identity"')
            store.put(f"{name}/1/weights.bin", bytes(3 << 20))
        yield store


@pytest.fixture
def cache(tmp_path: Path) -> str:
    return f"--repository-cache-dir={tmp_path / 'cache'}"


def _run(*arguments: str) -> tuple[int, str, str]:
    """Status, output and errors of a command, in a process of its own: the hub's library reads its
    variables when it is imported.
    """
    done = subprocess.run(
        [sys.executable, "-m", "penstock", *arguments], capture_output=True, text=True, timeout=60
    )
    return done.returncode, done.stdout, done.stderr


def test_models_are_fetched_once_listed_and_removed(store: ObjectStore, cache: str) -> None:
    status, told, _ = _run("pull", store.address, "a", cache)
    assert (status, told) == (0, f"{store.address}/a: 3.00 MiB\n")
    _run("pull", store.address, cache)
    assert store.gets["a/1/weights.bin"] == 1
    _, told, _ = _run("list", cache)
    rows = [line.split() for line in told.splitlines()]
    assert {row[0] for row in rows if row[0].endswith(("/a", "/b"))} == {
        f"{store.address}/a",
        f"{store.address}/b",
    }
    status, told, _ = _run("remove", f"{store.address}/b", cache)
    assert (status, told) == (0, f"{store.address}/b: 3.00 MiB removed\n")
    _, told, _ = _run("list", cache)
    assert f"{store.address}/b" not in told
    # The contents of both are equal, and kept once: that of the other is still there.
    _run("pull", store.address, "a", cache)
    assert store.gets["a/1/weights.bin"] == 1


def test_a_list_of_nothing_says_so(store: ObjectStore, cache: str, tmp_path: Path) -> None:
    assert _run("list", cache) == (1, "", f"penstock: there is no folder '{tmp_path / 'cache'}'\n")
    (tmp_path / "cache").mkdir()
    assert _run("list", cache) == (0, "", "penstock: nothing was fetched yet\n")


def test_a_path_with_a_number_is_no_version(store: ObjectStore, cache: str) -> None:
    store.put("2024/m/config.pbtxt", 'backend: "identity"')
    store.put("2024/m/1/weights.bin", b"weights")
    _run("pull", f"{store.address}/2024", cache)
    rows = [line.split()[0] for line in _run("list", cache)[1].splitlines()]
    assert rows == [f"{store.address}/2024/m"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["pull", "/models"], "'/models' is a folder of this machine"),
        (["pull", "S", "none"], "there is no model 'none'"),
        (["pull", "s4://bucket"], "the scheme 's4' is not known"),
        (["remove", "s3://never"], "nothing was fetched from 's3://never'"),
    ],
)
def test_what_is_not_there_is_told_in_a_line(
    store: ObjectStore, cache: str, arguments: list[str], said: str
) -> None:
    known = [store.address if each == "S" else each for each in arguments]
    status, _, told = _run(*known, cache)
    assert status == 1
    assert said in told
    assert len(told.splitlines()) == 1


def test_a_command_that_asked_a_store_ends_without_what_would_abort_its_threads(
    store: ObjectStore, cache: str
) -> None:
    program = (
        "import atexit, sys; from penstock.cli import main\n"
        "class Kept:\n"
        "    def __del__(self): print('finalized')\n"
        "kept = Kept()\n"
        "atexit.register(print, 'closed')\n"
        "sys.exit(main())"
    )
    asked = [sys.executable, "-c", program, "pull", store.address, "none", cache]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "closed\n")
    assert "there is no model 'none'" in done.stderr


def test_a_model_that_cannot_be_fetched_keeps_no_other_from_it(
    store: ObjectStore, cache: str
) -> None:
    store.put("a/1/weights.bin/inner", b"x")
    status, told, failed = _run("pull", store.address, cache)
    assert (status, told) == (1, f"{store.address}/b: 3.00 MiB\n")
    assert "model 'a' is not fetched: the key 'a/1/weights.bin' is an object and a folder" in failed


def test_what_was_never_fetched_keeps_nothing_from_being_removed(
    store: ObjectStore, cache: str
) -> None:
    _run("pull", store.address, "a", cache)
    status, told, failed = _run("remove", "s3://never", f"{store.address}/a", cache)
    assert (status, told) == (1, f"{store.address}/a: 3.00 MiB removed\n")
    assert "nothing was fetched from 's3://never'" in failed


# -- the hub ---------------------------------------------------------------------------------------


@pytest.fixture
def found(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with a language model in two formats."""
    with hub() as found:
        monkeypatch.setenv("HF_ENDPOINT", found.url)
        found.files = {
            "README.md": b"what it is",
            "config.json": json.dumps({"architectures": ["LlamaForCausalLM"]}).encode(),
            "model.safetensors": b"weights",
            "pytorch_model.bin": b"the same",
        }
        yield found


def test_of_the_hub_what_is_served_is_fetched(found: Hub, cache: str) -> None:
    status, told, _ = _run("pull", "hf://owner/models", cache)
    assert status == 0
    assert {*found.gets} == {"config.json", "model.safetensors"}
    _, told, _ = _run("list", cache)
    assert "hf://owner/models" in told
    assert _run("remove", "hf://owner/models", cache)[0] == 0
    assert "hf://owner/models" not in _run("list", cache)[1]


def test_files_of_the_hub_are_fetched_by_their_names(found: Hub, cache: str) -> None:
    status, told, _ = _run("pull", "hf://owner/models", "pytorch_model.bin", cache)
    assert status == 0
    assert (Path(told.strip()) / "pytorch_model.bin").read_bytes() == b"the same"
    assert _run("pull", "hf://owner/models", "none.bin", cache)[0] == 1


@pytest.mark.contract("SD-02")
def test_a_model_of_the_hub_is_imported(found: Hub, tmp_path: Path) -> None:
    status, told, _ = _run("import", "hf://owner/models", str(tmp_path / "models"), "--name=chat")
    assert status == 0
    assert told.startswith(f"wrote {tmp_path}/models/chat; serve it with: ")
    version = tmp_path / "models" / "chat" / "1"
    assert json.loads((version / "model.json").read_text()) == {"model": "weights"}
    weights = version / "weights" / "model.safetensors"
    assert not weights.is_symlink()
    assert weights.read_bytes() == b"weights"


def test_the_commands_of_buckets_in_this_process(
    store: ObjectStore, cache: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["pull", store.address, "a", cache]) == 0
    assert cli.main(["list", cache]) == 0
    assert f"{store.address}/a" in capsys.readouterr().out
    assert cli.main(["remove", f"{store.address}/a", cache]) == 0
    assert cli.main(["remove", f"{store.address}/a", cache]) == 1
    assert cli.main(["pull", store.address, "none", cache]) == 1
    assert cli.main(["pull", "/a/folder", cache]) == 1


def test_the_command_without_an_address_says_how_it_is_used(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        cli.main(["pull"])
    assert "ADDRESS" in capsys.readouterr().err


def test_what_is_larger_than_the_cache_may_be_is_not_fetched(
    store: ObjectStore, cache: str, capsys: pytest.CaptureFixture[str]
) -> None:
    size = "--repository-cache-byte-size"
    status, _, told = _run("pull", store.address, "a", cache, f"{size}=1000")
    assert status == 1
    assert told.startswith("penstock: model 'a' is not fetched: ")
    assert size in told
    with pytest.raises(SystemExit):
        cli.main(["pull", store.address, f"{size}=1k"])
    assert f"{size}: a number of bytes, not '1k'" in capsys.readouterr().err


def test_nothing_to_remove_is_told_for_each_address(store: ObjectStore, cache: str) -> None:
    _run("pull", store.address, "a", cache)
    status, told, refused = _run("remove", "s3://none/x", f"{store.address}/a", cache)
    assert (status, told) == (1, f"{store.address}/a: 3.00 MiB removed\n")
    text = "nothing was fetched from 's3://none/x'; `penstock list` shows what was"
    assert refused == f"penstock: {text}\n"
