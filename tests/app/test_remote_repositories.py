"""A server whose models lie in an object store."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest
from tritonclient.grpc import InferenceServerClient, InferInput
from tritonclient.utils import InferenceServerException

from harness.hub import hub
from harness.object_store import ObjectStore, object_store
from harness.processes import command_of
from harness.serving import Served, serving, start, wait_until

CONFIG = """
backend: "python"
max_batch_size: 0
input [{ name: "IN" data_type: TYPE_FP32 dims: [ -1 ] }]
output [{ name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] }]
"""
MODEL = """
from pathlib import Path
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        folder = Path(args["model_repository"], args["model_version"])
        self.add = float((folder / "number.txt").read_text())

    def execute(self, requests):
        inputs = [pb_utils.get_input_tensor_by_name(each, "IN").as_numpy() for each in requests]
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("OUT", each + self.add)]) for each in inputs
        ]
"""


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ObjectStore]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("HOME", str(tmp_path))
    with object_store() as store:
        store.key = "key"
        yield store


def put_model(store: ObjectStore, name: str, number: int, version: int = 1) -> None:
    store.put(f"{name}/config.pbtxt", CONFIG)
    store.put(f"{name}/{version}/model.py", MODEL)
    store.put(f"{name}/{version}/number.txt", str(number))


def write_near(tmp_path: Path) -> Path:
    """A folder with the model `near`, which adds 1."""
    near = tmp_path / "near"
    for path, text in (("1/model.py", MODEL), ("1/number.txt", "1"), ("config.pbtxt", CONFIG)):
        (near / "near" / path).parent.mkdir(parents=True, exist_ok=True)
        (near / "near" / path).write_text(text)
    return near


def flags(store: ObjectStore, tmp_path: Path, *more: str) -> tuple[str, ...]:
    cache = tmp_path / "cache"
    return (f"--model-repository={store.address}", f"--repository-cache-dir={cache}", *more)


def ask(served: Served, model: str) -> float:
    given = InferInput("IN", [1], "FP32")
    given.set_data_from_numpy(np.zeros(1, np.float32))
    with InferenceServerClient(served.grpc) as client:
        return float(client.infer(model, [given]).as_numpy("OUT")[0])


@pytest.mark.slow
@pytest.mark.contract("R-29", "R-33")
def test_models_of_a_bucket_are_served(store: ObjectStore, tmp_path: Path) -> None:
    put_model(store, "a", 1)
    put_model(store, "b", 2)
    with serving(None, tmp_path / "log", *flags(store, tmp_path)) as served:
        assert [ask(served, "a"), ask(served, "b")] == [1, 2]
        page = httpx.get(served.metrics).text
        assert served.stop() == 0
    assert 'penstock_repository_objects_total{source="fetched"} 6' in page
    assert store.address in served.log.read_text()
    assert not list((tmp_path / "cache" / "runs").iterdir())
    with serving(None, tmp_path / "log", *flags(store, tmp_path)) as served:
        assert ask(served, "b") == 2
        page = httpx.get(served.metrics).text
    assert 'penstock_repository_objects_total{source="cached"} 6' in page
    assert set(store.gets.values()) == {1}


@pytest.mark.slow
@pytest.mark.contract("R-35")
def test_a_bucket_is_followed_by_polling(store: ObjectStore, tmp_path: Path) -> None:
    put_model(store, "a", 1)
    poll = flags(store, tmp_path, "--model-control-mode=poll", "--repository-poll-secs=1")
    with serving(None, tmp_path / "log", *poll) as served:
        store.put("a/1/number.txt", "5")
        wait_until(lambda: ask(served, "a") == 5)
        store.put("half/config.pbtxt", CONFIG)
        store.refusals = [(503, "SlowDown")] * 3
        put_model(store, "half", 7)
        with InferenceServerClient(served.grpc) as client:
            wait_until(lambda: client.is_model_ready("half"))
            store.objects = {key: each for key, each in store.objects.items() if key[0] != "a"}
            wait_until(lambda: not client.is_model_ready("a"))
        assert ask(served, "half") == 7


@pytest.mark.slow
def test_models_of_a_bucket_come_and_go_by_requests(store: ObjectStore, tmp_path: Path) -> None:
    put_model(store, "a", 1)
    explicit = flags(store, tmp_path, "--model-control-mode=explicit")
    with serving(None, tmp_path / "log", *explicit) as served:
        with InferenceServerClient(served.grpc) as client:
            client.load_model("a")
            assert ask(served, "a") == 1
            store.put("a/1/number.txt", "2")
            client.load_model("a")
            assert ask(served, "a") == 2
            lists = store.lists
            index = client.get_model_repository_index(as_json=True)["models"]
            assert [each["name"] for each in index] == ["a"]
            assert store.lists == lists + 1
            store.refusals = [(403, "AccessDenied")] * 100
            with pytest.raises(InferenceServerException, match=r"AccessDenied: .*may not list"):
                client.load_model("a")
            with pytest.raises(InferenceServerException, match=r"AccessDenied: .*may not list"):
                client.get_model_repository_index()
            assert "Traceback" not in served.log.read_text()
            assert ask(served, "a") == 2
            store.refusals = []
            client.unload_model("a")
        wait_until(lambda: not list((tmp_path / "cache" / "runs").glob("*/*")))


@pytest.mark.slow
def test_a_bucket_that_is_not_there_ends_the_start_with_a_line(
    store: ObjectStore, tmp_path: Path
) -> None:
    address = store.address.replace("/bucket", "/typo")
    log = tmp_path / "log"
    process = start(None, log, f"--model-repository={address}", *flags(store, tmp_path)[1:])
    assert process.wait(60) == 1
    last = log.read_text().splitlines()[-1]
    assert last.startswith("error: creating server: Internal - failed to read model repository")
    assert "NoSuchBucket" in last


@pytest.mark.slow
def test_a_repository_that_cannot_be_read_leaves_the_others_served_and_comes_by_a_poll(
    store: ObjectStore, tmp_path: Path
) -> None:
    put_model(store, "far", 2)
    near = write_near(tmp_path)
    store.key = "another"
    poll = ("--exit-on-error=false", "--model-control-mode=poll", "--repository-poll-secs=1")
    with serving(near, tmp_path / "log", *flags(store, tmp_path, *poll)) as served:
        assert ask(served, "near") == 1
        ready = f"http://{served.http}/v2/health/ready"
        assert httpx.get(ready).status_code == 400
        assert "penstock_repository_missing 1" in httpx.get(served.metrics).text
        with InferenceServerClient(served.grpc) as client:
            index = client.get_model_repository_index(as_json=True)["models"]
            assert [each["name"] for each in index] == ["near"]
            log = served.log.read_text().splitlines()
            (line,) = (line for line in log if "InvalidAccessKeyId: " in line)
            assert "; the other repositories are served" in line
            store.key = "key"
            wait_until(lambda: client.is_model_ready("far"))
        assert [ask(served, "near"), ask(served, "far")] == [1, 2]
        wait_until(lambda: httpx.get(ready).status_code == 200)
        assert "penstock_repository_missing 0" in httpx.get(served.metrics).text
        assert "Traceback" not in served.log.read_text()


@pytest.mark.slow
def test_a_model_of_a_folder_is_loaded_while_a_bucket_is_down(
    store: ObjectStore, tmp_path: Path
) -> None:
    put_model(store, "far", 2)
    near = write_near(tmp_path)
    explicit = flags(store, tmp_path, "--model-control-mode=explicit", "--load-model=far")
    with (
        serving(near, tmp_path / "log", *explicit) as served,
        InferenceServerClient(served.grpc) as client,
    ):
        store.key = "another"
        client.load_model("near")
        assert [ask(served, "near"), ask(served, "far")] == [1, 2]
        with pytest.raises(InferenceServerException, match="InvalidAccessKeyId"):
            client.load_model("far")
        assert ask(served, "far") == 2


@pytest.mark.slow
def test_a_cache_that_cannot_be_written_is_tried_again_by_a_load(
    store: ObjectStore, tmp_path: Path
) -> None:
    put_model(store, "far", 2)
    (tmp_path / "near").mkdir()
    (tmp_path / "cache").write_text("")  # which nobody can write into, also not the user root
    control = ("--exit-on-error=false", "--model-control-mode=explicit")
    with (
        serving(tmp_path / "near", tmp_path / "log", *flags(store, tmp_path, *control)) as served,
        InferenceServerClient(served.grpc) as client,
    ):
        with pytest.raises(InferenceServerException, match="cannot be written: Not a directory"):
            client.load_model("far")
        (tmp_path / "cache").unlink()
        wait_until(lambda: _loads(client, "far"))
        assert ask(served, "far") == 2


def _loads(client: InferenceServerClient, name: str) -> bool:
    try:
        client.load_model(name)
    except InferenceServerException:
        return False
    return True


def test_an_address_with_a_typing_error_ends_the_start_with_the_right_one(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = start(None, log, "--model-repository=s3a://bucket/models")
    assert process.wait(60) == 1
    assert "did you mean 's3://bucket/models'?" in log.read_text()


@pytest.mark.slow
def test_a_missing_library_is_named(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "obstore.py").write_text("raise ImportError('not here')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    log = tmp_path / "log"
    assert start(None, log, *flags(store, tmp_path)).wait(60) == 1
    assert "pip install 'penstock[cloud]'" in log.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_download_that_is_cut_off_goes_on_at_the_next_start(
    store: ObjectStore, tmp_path: Path, number: int
) -> None:
    put_model(store, "a", 3)
    weights = os.urandom(40 << 20)
    store.put("a/1/weights.bin", weights)
    store.hold_after = 7 << 20
    log = tmp_path / "log"
    store.resume.clear()
    process = start(None, log, *flags(store, tmp_path))
    wait_until(lambda: store.sent["a/1/weights.bin"] >= 2 * (7 << 20))
    store.hold_after = None
    process.send_signal(number)
    if number == signal.SIGKILL:
        process.wait(20)
    store.resume.set()
    assert process.wait(60) == (-9 if number == signal.SIGKILL else 0)
    with serving(None, log, *flags(store, tmp_path)) as served:
        assert ask(served, "a") == 3
    cached = [path for path in tmp_path.rglob("*") if path.is_file()]
    same = [path.read_bytes() == weights for path in cached if path.stat().st_size == len(weights)]
    assert same
    assert all(same)
    # What was sent and not read, since the connection was closed, counts there, too.
    assert len(weights) <= store.sent["a/1/weights.bin"] <= 2.5 * len(weights)


def _fetchers(served: Served) -> list[int]:
    name = b"penstock.models.remote.fetch_process"
    return [pid for pid in served.family() if name in command_of(pid)]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_process_that_waits_for_loads_ends_with_the_server(
    store: ObjectStore, tmp_path: Path, number: int
) -> None:
    put_model(store, "a", 1)
    explicit = flags(store, tmp_path, "--model-control-mode=explicit")
    with serving(None, tmp_path / "log", *explicit) as served:
        wait_until(lambda: bool(_fetchers(served)))
        (waiting,) = _fetchers(served)
        served.stop(number)
        wait_until(lambda: not command_of(waiting))


@pytest.mark.slow
def test_no_process_waits_where_no_model_is_loaded_later(
    store: ObjectStore, tmp_path: Path
) -> None:
    put_model(store, "a", 1)
    with serving(None, tmp_path / "log", *flags(store, tmp_path)) as served:
        assert ask(served, "a") == 1
        assert not _fetchers(served)


@pytest.mark.slow
@pytest.mark.parametrize("address", ["s3://http://{host}/bucket", "hf://owner/models"])
def test_a_store_that_does_not_answer_does_not_hold_the_exit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    variables = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
    for name, value in {**variables, "HF_HOME": str(tmp_path / "hf")}.items():
        monkeypatch.setenv(name, value)
    log = tmp_path / "log"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host = f"127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setenv("HF_ENDPOINT", f"http://{host}")
        flag = f"--model-repository={address.format(host=host)}"
        process = start(None, log, flag, f"--repository-cache-dir={tmp_path / 'cache'}")
        asked, _ = silent.accept()
        with asked:
            asked.recv(1)
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
    assert "Traceback" not in log.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bucket", "hub"])
def test_a_load_from_a_store_that_does_not_answer_does_not_hold_the_exit(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    put_model(store, "a", 1)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))

    def held() -> Callable[[], object]:
        found.asked.set()
        return store.resume.wait

    with hub() as found, ThreadPoolExecutor() as threads:
        monkeypatch.setenv("HF_ENDPOINT", found.url)
        found.files = {key: content for key, (content, _) in store.objects.items()}
        answers = store.resume if kind == "bucket" else found.answer
        address = store.address if kind == "bucket" else "hf://owner/models"
        cache = f"--repository-cache-dir={tmp_path / 'cache'}"
        arguments = (f"--model-repository={address}", cache, "--model-control-mode=explicit")
        with serving(None, tmp_path / "log", *arguments) as served:
            store.on_list = held
            answers.clear()
            url = f"http://{served.http}/v2/repository/models/a/load"
            loading = threads.submit(httpx.post, url, timeout=60)
            assert found.asked.wait(30)
            assert served.stop(timeout=20) == 0  # less than the time for an exit
            assert "the server is being stopped" in loading.result().text
            assert "Traceback" not in served.log.read_text()


@pytest.mark.slow
def test_models_of_the_hub_are_served_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, explicit = tmp_path / "log", "--model-control-mode=explicit"
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    with hub() as found:
        monkeypatch.setenv("HF_ENDPOINT", found.url)
        found.files = {
            "README.md": b"what they are",
            "a/config.pbtxt": CONFIG.encode(),
            "a/1/model.py": MODEL.encode(),
            "a/1/number.txt": b"1",
        }
        first = found.commit
        with (
            serving(None, log, "--model-repository=hf://owner/models", explicit) as served,
            InferenceServerClient(served.grpc) as client,
        ):
            client.load_model("a")
            assert ask(served, "a") == 1
            found.files["a/1/number.txt"] = b"2"
            client.load_model("a")
            assert ask(served, "a") == 2
            client.unload_model("a")
        assert found.gets == {"a/config.pbtxt": 1, "a/1/model.py": 1, "a/1/number.txt": 2}
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with serving(None, log, f"--model-repository=hf://owner/models@{first}") as served:
        assert ask(served, "a") == 1
    with serving(None, log, "--model-repository=hf://owner/models") as served:
        assert ask(served, "a") == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("hf://owner/typo", "the hub has no such repository"),
        ("hf://owner/models@v9", "there is no revision 'v9'"),
        ("hf://models", "is no address: hf://OWNER/NAME"),
    ],
)
def test_a_repository_that_the_hub_lacks_ends_the_start_with_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, said: str
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    with hub() as found:
        monkeypatch.setenv("HF_ENDPOINT", found.url)
        log = tmp_path / "log"
        assert start(None, log, f"--model-repository={address}").wait(60) == 1
    assert said in log.read_text().splitlines()[-1]
