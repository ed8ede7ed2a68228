"""Large objects, which another process fetches."""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.object_store import ObjectStore
from harness.processes import command_of, processes_below
from harness.serving import wait_until
from models.remote.opening import files_of, opened, remote
from penstock.models.remote.part import SEGMENT
from penstock.models.remote.store_thread import StoppedError

pytestmark = pytest.mark.slow

SIZE = 4 * SEGMENT + (1 << 20) + 7
"""Four whole segments and one of a MiB."""


def fetchers() -> list[int]:
    """The processes that fetch for this one."""
    name = b"penstock.models.remote.fetch_process"
    return [pid for pid in processes_below(os.getpid()) if name in command_of(pid)]


def test_a_large_object_is_fetched_by_another_process_and_hashed(
    store: ObjectStore, tmp_path: Path
) -> None:
    content = os.urandom(SIZE)
    store.put("m/1/weights", content)
    store.put("m/1/small", "small")
    store.hold_after = 1 << 20
    store.resume.clear()
    with remote(tmp_path) as repositories, ThreadPoolExecutor(1) as threads:
        taking = threads.submit(repositories.open(store.address).take, "m")
        wait_until(lambda: bool(store.sent["m/1/weights"]))
        (fetcher,) = fetchers()
        own = os.getpriority(os.PRIO_PROCESS, 0)
        assert os.getpriority(os.PRIO_PROCESS, fetcher) == min(own + 10, 19)
        store.resume.set()
        assert files_of(taking.result()) == {"1/weights": content, "1/small": b"small"}
        assert repositories.traffic.fetched_bytes == SIZE + 5
    assert not fetchers()
    assert store.sent["m/1/weights"] == SIZE


def test_a_fetching_process_that_is_killed_is_replaced_by_this_one(
    store: ObjectStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    content = os.urandom(SIZE)
    store.put("m/1/weights", content)
    store.hold_after = 1 << 20
    store.resume.clear()
    with opened(store, tmp_path) as repository, ThreadPoolExecutor(1) as threads:
        taking = threads.submit(repository.take, "m")
        wait_until(lambda: bool(store.sent["m/1/weights"]))
        os.kill(fetchers()[0], signal.SIGKILL)
        store.resume.set()
        assert files_of(taking.result()) == {"1/weights": content}
    assert "the process that fetches objects has ended" in caplog.text


def test_what_a_process_fetched_until_it_was_killed_is_not_fetched_again(
    store: ObjectStore, tmp_path: Path
) -> None:
    content = os.urandom(SIZE)
    store.put("m/1/weights", content)
    store.hold_after = 2 << 20  # all segments but the last
    store.resume.clear()
    with opened(store, tmp_path) as repository, ThreadPoolExecutor(1) as threads:
        taking = threads.submit(repository.take, "m")
        wait_until(lambda: len([*_whole(tmp_path)]) == 1)
        wait_until(lambda: store.gets["m/1/weights"] == 2)  # the last, and one other
        os.kill(fetchers()[0], signal.SIGKILL)
        store.resume.set()
        assert files_of(taking.result()) == {"1/weights": content}
    assert store.gets["m/1/weights"] == 6


def test_a_process_that_fails_in_no_known_way_is_replaced_by_this_one(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that may start no thread."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(
        "import os\ndef refuse(*given):\n    raise MemoryError\nos.pwrite = refuse\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    content = os.urandom(SIZE)
    store.put("m/1/weights", content)
    with opened(store, tmp_path / "cache") as repository:
        assert files_of(repository.take("m")) == {"1/weights": content}


def test_a_process_waits_for_loads_once_they_are_expected(
    store: ObjectStore, tmp_path: Path
) -> None:
    content = os.urandom(SIZE)
    store.put("m/1/weights", content)
    store.hold_after = 1 << 20
    store.resume.clear()
    with remote(tmp_path) as repositories, ThreadPoolExecutor(1) as threads:
        repository = repositories.open(store.address)
        assert not fetchers()
        repositories.expect_loads()
        wait_until(lambda: bool(fetchers()))
        waiting = fetchers()
        taking = threads.submit(repository.take, "m")
        wait_until(lambda: bool(store.sent["m/1/weights"]))
        assert fetchers() == waiting
        store.resume.set()
        assert files_of(taking.result()) == {"1/weights": content}
        wait_until(lambda: len(fetchers()) == 1)
        assert fetchers() != waiting
        repositories.stop()
        assert not fetchers()


def test_a_waiting_process_that_was_killed_is_replaced(
    store: ObjectStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    content = os.urandom(SIZE)
    store.put("m/1/weights", content)
    with remote(tmp_path) as repositories:
        repository = repositories.open(store.address)
        repositories.expect_loads()
        wait_until(lambda: bool(fetchers()))
        os.kill(fetchers()[0], signal.SIGKILL)
        assert files_of(repository.take("m")) == {"1/weights": content}
    assert "has ended" not in caplog.text


def test_a_waiting_process_has_the_keys_of_the_time_of_its_use(
    store: ObjectStore, tmp_path: Path
) -> None:
    content = os.urandom(SIZE)
    store.put("m/1/weights", content)
    file = tmp_path / "keys.json"
    with remote(tmp_path / "cache", TRITON_CLOUD_CREDENTIAL_PATH=str(file)) as repositories:
        file.write_text('{"s3": {"": {"key_id": "first", "secret_key": "secret"}}}')
        repository = repositories.open(store.address)
        repositories.expect_loads()
        file.write_text('{"s3": {"": {"key_id": "second", "secret_key": "secret"}}}')
        store.key = "second"
        assert files_of(repository.take("m")) == {"1/weights": content}
        assert repositories.traffic.retries == 0


def test_what_comes_out_of_order_is_hashed_from_the_file(
    store: ObjectStore, tmp_path: Path
) -> None:
    content = os.urandom(SIZE)
    store.put("m/1/weights", content)
    store.cut_after = [1 << 20, 1 << 20]
    with opened(store, tmp_path) as repository:
        assert files_of(repository.take("m")) == {"1/weights": content}
    (stored,) = (tmp_path / "objects").iterdir()
    assert stored.name == hashlib.sha256(content).hexdigest()


def test_an_object_that_is_replaced_is_fetched_anew(store: ObjectStore, tmp_path: Path) -> None:
    store.put("m/1/weights", b"old" * (SIZE // 3))
    store.cut_after = [1 << 20]
    store.hold_after = 1 << 19
    store.resume.clear()
    with opened(store, tmp_path) as repository, ThreadPoolExecutor(1) as threads:
        taking = threads.submit(repository.take, "m")
        wait_until(lambda: bool(store.sent["m/1/weights"]))
        store.put("m/1/weights", b"new" * (SIZE // 3))
        store.resume.set()
        assert files_of(taking.result()) == {"1/weights": b"new" * (SIZE // 3)}


@pytest.mark.parametrize("segments", [1, 4])  # fetched by this process, and by another
def test_a_stopped_download_goes_on_where_it_was(
    store: ObjectStore, tmp_path: Path, segments: int
) -> None:
    content = os.urandom(segments * SEGMENT + (1 << 20))
    store.put("m/1/weights", content)
    store.hold_after = 2 << 20  # all segments but the last
    store.resume.clear()
    with remote(tmp_path) as repositories, ThreadPoolExecutor(1) as threads:
        taking = threads.submit(repositories.open(store.address).take, "m")
        wait_until(lambda: len([*_whole(tmp_path)]) == 1)
        wait_until(lambda: store.gets["m/1/weights"] == 2)  # the last, and one other
        repositories.stop()
        with pytest.raises(StoppedError):
            taking.result()
    assert not fetchers()
    store.resume.set()
    with remote(tmp_path) as repositories:
        assert files_of(repositories.open(store.address).take("m")) == {"1/weights": content}
        # Not again the last segment, which was whole.
        assert repositories.traffic.fetched_bytes == segments * SEGMENT


def test_segments_of_another_size_are_fetched_anew(store: ObjectStore, tmp_path: Path) -> None:
    """A release before this one had left them."""
    content = os.urandom(SIZE)
    store.put("m/1/weights", content)
    store.hold_after = 2 << 20
    store.resume.clear()
    with remote(tmp_path) as repositories, ThreadPoolExecutor(1) as threads:
        taking = threads.submit(repositories.open(store.address).take, "m")
        wait_until(lambda: store.gets["m/1/weights"] == 2)
        repositories.stop()
        with pytest.raises(StoppedError):
            taking.result()
    (log,) = (tmp_path / "parts").glob("*.done")
    boot, size, _ = log.read_text().split()[0].split("/")
    log.write_text(f"{boot}/{size}/{SEGMENT // 2}\n0\n{SEGMENT}\n")
    store.resume.set()
    with opened(store, tmp_path) as again:
        assert files_of(again.take("m")) == {"1/weights": content}


def _whole(cache: Path) -> Iterator[str]:
    """The segments that are whole, of all objects."""
    for log in (cache / "parts").glob("*.done"):
        yield from log.read_text().split()[1:]


def test_a_refusal_is_the_store_s(store: ObjectStore, tmp_path: Path) -> None:
    store.put("m/1/weights", bytes(SIZE))

    def refuse() -> None:
        store.key = "another"

    with opened(store, tmp_path) as repository:
        store.on_list = lambda: refuse
        with pytest.raises(OSError, match="InvalidAccessKeyId"):
            repository.take("m")


@pytest.mark.parametrize(
    ("surplus", "reason"),
    [(1, "more bytes than it was asked for"), (-SEGMENT, "nothing of what it was")],
)
def test_answers_of_another_size_are_refused_in_the_end(
    store: ObjectStore, tmp_path: Path, surplus: int, reason: str
) -> None:
    store.put("m/1/weights", bytes(2 * SEGMENT))
    store.surplus = surplus
    with (
        opened(store, tmp_path) as repository,
        pytest.raises(OSError, match=f"'{store.address}': m/1/weights the store .*{reason}"),
    ):
        repository.take("m")
    assert not list((tmp_path / "objects").iterdir())


def test_a_full_disk_is_named(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(
        "import errno, os\n"
        "def refuse(*given):\n    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))\n"
        "os.pwrite = refuse\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    store.put("m/1/weights", bytes(SIZE))
    with (
        opened(store, tmp_path / "cache") as repository,
        pytest.raises(OSError, match=r"cannot be written: No space .*-cache-dir"),
    ):
        repository.take("m")
    assert not list((tmp_path / "cache" / "parts").iterdir())


def test_where_no_process_can_be_started_this_one_fetches(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("import os\nos._exit(3)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    content = os.urandom(SIZE)
    store.put("m/1/weights", content)
    with opened(store, tmp_path / "cache") as repository:
        assert files_of(repository.take("m")) == {"1/weights": content}
