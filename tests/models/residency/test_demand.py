"""Models that are loaded when they are called: `--model-control-mode=demand`."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from queue import Queue
from threading import Event
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

from harness.serving import Served, serving, wait_until
from models.residency.repository import CALLS, ONE, WAITS, Repository

Start = Callable[..., AbstractContextManager["Asked"]]


class Asked:
    """A server, and what a stock client has of it."""

    def __init__(self, served: Served, client: grpcclient.InferenceServerClient) -> None:
        self.served = served
        self.client = client

    def answer(self, model: str, x: float = 0.0, **options: Any) -> float:
        """The model's answer to one number."""
        result = self.client.infer(model, _inputs(x), **options)
        return float(result.as_numpy("Y")[0])

    def states(self) -> dict[str, str]:
        """The reason of each model that is not ready, and `READY` of those that are."""
        index = self.client.get_model_repository_index().models
        return {one.name: one.reason or one.state for one in index}

    def ready(self) -> set[str]:
        return {name for name, state in self.states().items() if state == "READY"}

    def page(self, accept: str = "text/plain") -> str:
        """The metrics."""
        request = urllib.request.Request(self.served.metrics, headers={"accept": accept})
        with urllib.request.urlopen(request) as answer:
            return str(answer.read().decode())

    def get(self, path: str) -> tuple[int, str, dict[str, str]]:
        """Status, body and headers of an answer over HTTP."""
        return self._fetched(path, None)

    def post(
        self, path: str, body: Any, headers: Mapping[str, str] = MappingProxyType({})
    ) -> tuple[int, str, dict[str, str]]:
        """The same, for what is sent as JSON."""
        return self._fetched(path, json.dumps(body).encode(), headers)

    def _fetched(
        self, path: str, body: bytes | None, headers: Mapping[str, str] = MappingProxyType({})
    ) -> tuple[int, str, dict[str, str]]:
        url = f"http://{self.served.http}{path}"
        try:
            with urllib.request.urlopen(urllib.request.Request(url, body, {**headers})) as answer:
                return answer.status, answer.read().decode(), dict(answer.headers)
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode(), dict(error.headers)


def _inputs(x: float) -> list[grpcclient.InferInput]:
    tensor = grpcclient.InferInput("X", [1], "FP32")
    tensor.set_data_from_numpy(np.array([x], np.float32))
    return [tensor]


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "models")


@pytest.fixture
def start(repository: Repository, tmp_path: Path) -> Start:
    @contextmanager
    def started(*flags: str, models: float | None = None) -> Iterator[Asked]:
        """A server whose memory budget holds so many `models`, as they are estimated."""
        budget = ["--measured-sizes=off"]
        if models is not None:
            budget += [f"--memory-budget={int(models * ONE)}"]
        with (
            serving(
                repository.path, tmp_path / "log", "--model-control-mode=demand", *budget, *flags
            ) as served,
            grpcclient.InferenceServerClient(served.grpc) as client,
        ):
            yield Asked(served, client)

    return started


def test_models_are_known_before_they_are_loaded(start: Start, repository: Repository) -> None:
    repository.add("plain")
    with start() as server:
        assert server.client.is_server_ready()
        assert server.states() == {"plain": "on demand"}
        assert server.client.get_model_metadata("plain").inputs[0].name == "X"
        assert server.client.get_model_config("plain").config.backend == "python"
        status, _, headers = server.get("/v2/models/plain/ready")
        assert (status, headers["penstock-resident"]) == (200, "false")
        assert repository.loads() == []
        assert server.answer("plain") == 1
        assert server.states() == {"plain": "READY"}
        assert server.get("/v2/models/plain/ready")[2]["penstock-resident"] == "true"


def test_a_hundred_first_calls_make_one_load(start: Start, repository: Repository) -> None:
    repository.add("plain")
    with start() as server, ThreadPoolExecutor(100) as pool:
        calls = [pool.submit(server.answer, "plain", x) for x in range(100)]
        assert [call.result() for call in calls] == [x + 1 for x in range(100)]
    assert repository.loads() == ["plain"]


def test_whoever_calls_loads(start: Start, repository: Repository) -> None:
    """A model in Python, a stream, an ensemble's step, HTTP."""
    for name in ("plain", "first", "second", "third"):
        repository.add(name)
    repository.add("caller", CALLS)
    repository.add_ensemble("pipe", "first", "second")
    answers: Queue[Any] = Queue()
    with start() as server:
        assert server.answer("caller") == 2
        assert server.answer("pipe") == 2
        server.client.start_stream(lambda result, error: answers.put(error or result))
        server.client.async_stream_infer("third", _inputs(4))
        assert answers.get(timeout=60).as_numpy("Y")[0] == 5
        server.client.stop_stream()
    assert sorted(repository.loads()) == ["caller", "first", "plain", "second", "third"]


def test_a_version_that_there_is_not_loads_nothing(start: Start, repository: Repository) -> None:
    for name in ("plain", "other"):
        repository.add(name)
    with start(models=1.5) as server:
        assert server.answer("other") == 1
        for ask in (server.answer, server.client.get_model_metadata):
            with pytest.raises(InferenceServerException, match="'plain' version 9 is not found"):
                ask("plain", model_version="9")
        assert server.get("/v2/models/plain/versions/9/ready")[0] == 400
        assert server.get("/v2/models/plain/versions/1/ready")[0] == 200
        assert server.ready() == {"other"}
        assert server.answer("plain", model_version="1") == 1
    assert repository.loads() == ["other", "plain"]


def test_no_alias_has_the_name_of_a_model_that_waits(start: Start, repository: Repository) -> None:
    for name in ("plain", "other"):
        repository.add(name)
    with start("--repository-poll-secs=1") as server:
        other = {"targets": [{"model": "other"}]}
        status, text, _ = server.post("/v2/repository/aliases/plain", other)
        assert (status, "a model has this name" in text) == (400, True)
        missing = {"targets": [{"model": "plain", "version": 9}]}
        assert server.post("/v2/repository/aliases/alias", missing)[0] == 400
        # Of a model that comes later the name is its own, too, loaded or not.
        assert server.post("/v2/repository/aliases/late", other)[0] == 200
        assert server.answer("late") == 1
        assert repository.loads() == ["other"]
        repository.add("late")
        wait_until(lambda: server.get("/v2/models/late/versions/1/ready")[0] == 200)
        assert server.answer("late") == 1
    assert repository.loads() == ["other", "late"]


def test_the_least_valuable_model_goes_where_memory_ends(
    start: Start, repository: Repository
) -> None:
    for name in ("a", "b", "c"):
        repository.add(name, min_resident_seconds="0")
    costly = repository.path / "a" / "1" / "model.py"  # so that its load is worth more for sure
    costly.write_text(
        costly.read_text() + "\n    def initialize(self, args):\n        time.sleep(3)\n"
    )
    with start(models=2.5) as server:
        for name in ("a", "b", "a", "c"):
            server.answer(name)
        assert server.ready() == {"a", "c"}
        assert server.answer("b") == 1
        assert "c" in server.ready() or "a" in server.ready()
        page = server.page()
        assert 'penstock_model_unloads_total{model="b",cause="memory"} 1\n' in page
        assert 'penstock_model_loads_total{model="b",cause="call"} 2\n' in page
        assert 'penstock_model_resident_bytes{model="b",device="host"}' in page
        assert "failed to load" not in server.served.log.read_text()


def test_a_model_with_requests_stays_and_the_next_one_waits(
    start: Start, repository: Repository
) -> None:
    repository.add("slow", WAITS, min_resident_seconds="0")
    repository.add("plain")
    with start(models=1.5) as server, ThreadPoolExecutor(2) as pool:
        server.answer("slow", 0)
        slow = pool.submit(server.answer, "slow", 2)
        wait_until((repository.path.parent / "waits-2").exists)
        plain = pool.submit(server.answer, "plain")
        assert slow.result() == 3
        assert plain.result() == 1
        assert server.ready() == {"plain"}


def test_pipelines_that_fit_one_by_one_never_wait_for_each_other(
    start: Start, repository: Repository
) -> None:
    for name in ("a", "b", "c", "d"):
        repository.add(name, min_resident_seconds="0")
    repository.add_ensemble("one", "a", "b")
    repository.add_ensemble("other", "c", "d")
    with start(models=2.5) as server, ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(server.answer, name) for _ in range(6) for name in ("one", "other")]
        assert [call.result() for call in calls] == [2] * 12


def test_what_can_never_fit_is_refused_at_once(start: Start, repository: Repository) -> None:
    repository.add("pinned", residency="always")
    repository.add("plain")
    with start(models=1.5) as server:
        assert server.states() == {"pinned": "READY", "plain": "on demand"}
        with pytest.raises(InferenceServerException, match=r"finds no room.*'pinned' 3") as refused:
            server.answer("plain")
        assert refused.value.status() == "StatusCode.RESOURCE_EXHAUSTED"
        assert server.answer("pinned") == 1


def test_a_model_that_fails_tells_all_who_wait_and_is_left_alone_for_a_while(
    start: Start, repository: Repository
) -> None:
    repository.add("broken", "x" * 4 + " = (")
    repository.add("plain")
    with start() as server, ThreadPoolExecutor(8) as pool:
        calls = [pool.submit(server.answer, "broken") for _ in range(8)]
        for call in calls:
            with pytest.raises(InferenceServerException, match="SyntaxError"):
                call.result()
        assert not server.client.is_model_ready("broken")
        assert "SyntaxError" in server.states()["broken"]
        assert server.client.is_server_ready()
        assert server.answer("plain") == 1
    assert server.served.log.read_text().count("failed to load 'broken'") == 1


def test_a_wrong_parameter_is_told_in_the_index_and_to_calls(
    start: Start, repository: Repository
) -> None:
    repository.add("plain", residency="allways")
    repository.add("late", idle_seconds="soon")
    with start() as server:
        assert "must be one of" in server.states()["plain"]
        with pytest.raises(InferenceServerException, match="number of seconds, got 'soon'"):
            server.answer("late")


def test_a_call_that_leaves_while_it_waits_does_not_end_the_load(
    start: Start, repository: Repository
) -> None:
    repository.write("slow", *_slow_to_load(repository))
    with start() as server:
        with pytest.raises(InferenceServerException, match="Deadline Exceeded"):
            server.answer("slow", client_timeout=0.3)
        assert server.answer("slow") == 1
    assert repository.loads() == ["slow"]


def _slow_to_load(repository: Repository, seconds: float = 2) -> tuple[str, str]:
    repository.add("model")
    folder = repository.path / "model"
    config = (folder / "config.pbtxt").read_text()
    code = (folder / "1" / "model.py").read_text().replace("'model'", "'slow'")
    return config, code + f"\n    def initialize(self, args):\n        time.sleep({seconds})\n"


def test_a_load_that_takes_too_long_is_told(start: Start, repository: Repository) -> None:
    repository.write("slow", *_slow_to_load(repository))
    with start("--demand-load-timeout-secs=1.5") as server:
        with pytest.raises(InferenceServerException, match=r"not loaded within 1\.5 seconds"):
            server.answer("slow")
        wait_until(lambda: _answers(server, "slow"))


def _answers(server: Asked, model: str) -> bool:
    try:
        return server.answer(model) == 1
    except InferenceServerException:
        return False


def test_an_idle_model_goes_and_comes_again(start: Start, repository: Repository) -> None:
    repository.add("plain", idle_seconds="1")
    repository.add("stays")
    with start() as server:
        server.answer("plain")
        server.answer("stays")
        wait_until(lambda: server.ready() == {"stays"})
        assert server.answer("plain") == 1


def test_a_model_is_loaded_by_hand_and_not_by_a_call_where_it_says_so(
    start: Start, repository: Repository
) -> None:
    repository.add("plain", residency="manual")
    with start() as server:
        with pytest.raises(InferenceServerException, match="unknown model"):
            server.answer("plain")
        server.client.load_model("plain")
        assert server.answer("plain") == 1


def test_files_are_followed(start: Start, repository: Repository) -> None:
    repository.add("plain")
    with start("--repository-poll-secs=1") as server:
        server.answer("plain")
        repository.add("late")
        wait_until(lambda: server.states().get("late") == "on demand")
        assert server.answer("late") == 1
        model = repository.path / "plain" / "1" / "model.py"
        model.write_text(model.read_text().replace("x + 1", "x + 7"))
        wait_until(lambda: server.answer("plain") == 7)


def test_generate_waits_for_the_load(start: Start, repository: Repository) -> None:

    (repository.path / "speaks" / "1").mkdir(parents=True)
    (repository.path / "speaks" / "1" / "model.py").write_text(_SPEAKS)
    (repository.path / "speaks" / "config.pbtxt").write_text(
        'backend: "python"\n'
        'input [ { name: "text_input" data_type: TYPE_STRING dims: [ 1 ] } ]\n'
        'output [ { name: "text_output" data_type: TYPE_STRING dims: [ -1 ] } ]\n'
    )
    with start() as server:
        body = json.dumps({"text_input": "hello"}).encode()
        request = urllib.request.Request(
            f"http://{server.served.http}/v2/models/speaks/generate", body
        )
        with urllib.request.urlopen(request) as answer:
            assert json.load(answer)["text_output"] == "HELLO"


_SPEAKS = """import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            text = pb_utils.get_input_tensor_by_name(request, "text_input").as_numpy()
            said = np.array([text.ravel()[0].decode().upper()], object)
            tensor = pb_utils.Tensor("text_output", said)
            answers.append(pb_utils.InferenceResponse([tensor]))
        return answers
"""


def test_a_server_exits_while_calls_wait_for_a_load(start: Start, repository: Repository) -> None:
    repository.write("slow", *_slow_to_load(repository))
    repository.add("pinned", residency="always")
    with start("--exit-timeout-secs=1", models=2.5) as server, ThreadPoolExecutor(1) as pool:
        call = pool.submit(server.answer, "slow")
        wait_until(lambda: "slow" in repository.loads())
        server.served.stop()
        with pytest.raises(InferenceServerException):
            call.result()
        assert server.served.family() == []


def test_a_load_that_never_ends_holds_up_no_other(start: Start, repository: Repository) -> None:
    repository.write("slow", *_slow_to_load(repository, seconds=1000))
    for name in ("a", "b", "c"):
        repository.add(name, min_resident_seconds="0")
    with start("--demand-load-timeout-secs=5", "--exit-timeout-secs=1", models=2.5) as server:
        server.answer("a")
        server.answer("b")
        with pytest.raises(InferenceServerException, match="not loaded within 5 seconds"):
            server.answer("slow")
        assert [server.answer(name) for name in ("c", "a", "b")] == [1, 1, 1]


def _processes(server: Asked) -> list[int]:
    """The processes of models."""
    lines = {pid: Path(f"/proc/{pid}/cmdline") for pid in server.served.family()}
    return [
        pid for pid, file in lines.items() if file.exists() and b"bootstrap" in file.read_bytes()
    ]


def test_unload_gives_up_a_load_that_never_ends(start: Start, repository: Repository) -> None:
    repository.write("slow", *_slow_to_load(repository, seconds=1000))
    for name in ("a", "b"):
        repository.add(name, min_resident_seconds="0")
    with start("--spare-processes=0", models=2.5) as server, ThreadPoolExecutor(1) as pool:
        call = pool.submit(server.answer, "slow")
        wait_until(lambda: "slow" in repository.loads())
        server.client.unload_model("slow")
        with pytest.raises(InferenceServerException, match="load of model 'slow' was cancelled"):
            call.result()
        wait_until(lambda: server.states()["slow"] == "on demand")
        wait_until(lambda: not _processes(server))
        # Its memory is there again.
        assert [server.answer(name) for name in ("a", "b")] == [1, 1]
        assert server.ready() == {"a", "b"}


def test_a_server_exits_at_once_while_a_load_never_ends(
    start: Start, repository: Repository
) -> None:
    repository.write("slow", *_slow_to_load(repository, seconds=1000))
    with start("--exit-timeout-secs=1000") as server, ThreadPoolExecutor(1) as pool:
        call = pool.submit(server.answer, "slow")
        wait_until(lambda: "slow" in repository.loads())
        server.served.stop()  # which waits no more than 40 seconds
        with pytest.raises(InferenceServerException):
            call.result()


def test_a_load_that_nobody_waits_for_is_given_up(start: Start, repository: Repository) -> None:
    repository.write("slow", *_slow_to_load(repository, seconds=1000))
    with start("--spare-processes=0", "--demand-load-timeout-secs=1") as server:
        with pytest.raises(InferenceServerException, match="not loaded within 1 seconds"):
            server.answer("slow")
        wait_until(lambda: not _processes(server))
        wait_until(lambda: server.states()["slow"] == "on demand")
        assert "load of model 'slow' is cancelled" in server.served.log.read_text()


def test_a_request_to_load_makes_room(start: Start, repository: Repository) -> None:
    for name in ("a", "b"):
        repository.add(name, min_resident_seconds="0")
    repository.add("manual", residency="manual")
    with start(models=1.5) as server:
        assert server.answer("a") == 1
        server.client.load_model("manual")
        assert server.ready() == {"manual"}
        with pytest.raises(InferenceServerException, match=r"'b' finds no room.*'manual'"):
            server.client.load_model("b")
        server.client.unload_model("manual")
        server.client.load_model("b")
        assert server.ready() == {"b"}


def test_a_model_that_holds_what_its_callee_needs_is_told_at_once(
    start: Start, repository: Repository
) -> None:
    repository.add("caller", CALLS, min_resident_seconds="0")
    repository.add("plain", min_resident_seconds="0")
    with start(models=1.5) as server:
        with pytest.raises(InferenceServerException, match="models that call it hold the rest"):
            server.answer("caller")
        assert server.answer("plain") == 1


def test_callers_that_hold_each_others_room_are_not_left_waiting(
    start: Start, repository: Repository
) -> None:
    """Two models in Python that call, of which one at a time finds room with what it calls."""
    for name in ("plain", "other"):
        repository.add(name, min_resident_seconds="0")
    repository.add("one", CALLS, min_resident_seconds="0")
    repository.add("two", CALLS.replace("plain", "other"), min_resident_seconds="0")
    answers, refusals = list[bool](), list[str]()

    def answered(name: str) -> bool:
        try:
            return server.answer(name) == 2
        except InferenceServerException as error:
            refusals.append(str(error))
            return False

    with start(models=2.5) as server, ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            answers += pool.map(answered, ["one", "two", "one", "two"])
    assert any(answers)
    assert all("finds no room" in refusal for refusal in refusals)


@pytest.mark.slow
def test_models_under_steady_load_take_turns(start: Start, repository: Repository) -> None:
    """Neither is ever idle, and there is room for one."""
    for name in ("a", "b"):
        repository.add(name, WAITS, min_resident_seconds="0.3")
    with start(models=1.5) as server, ThreadPoolExecutor(4) as pool:
        ended = Event()

        def call(name: str) -> int:
            count = 0
            while not ended.is_set():
                assert server.answer(name, 0.05) > 1
                count += 1
            return count

        calls = [pool.submit(call, name) for name in ("a", "a", "b", "b")]
        try:
            wait_until(lambda: all(repository.loads().count(name) > 1 for name in ("a", "b")), 200)
        finally:
            ended.set()
        assert all(call.result() > 1 for call in calls)


def test_who_found_no_room_in_time_is_told_when_to_come_again(
    start: Start, repository: Repository
) -> None:
    repository.add("slow", WAITS, min_resident_seconds="100")
    repository.add("plain")
    with start("--demand-load-timeout-secs=5", models=1.5) as server:
        server.answer("slow", 0)
        status, text, headers = server.post(
            "/v2/models/plain/infer",
            {"inputs": [{"name": "X", "shape": [1], "datatype": "FP32", "data": [0]}]},
        )
        assert (status, "not loaded within 5 seconds" in text) == (503, True)
        assert 90 <= int(headers["retry-after"]) <= 100
