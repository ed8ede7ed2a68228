"""What becomes of models that fail in every way, and of whoever asks them meanwhile."""

from __future__ import annotations

import os
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.python_models.client import Client, Order, RefusedError, floats
from conformance.python_models.repository import DECOUPLED, PythonModel, parameter, write_models
from serving import Served, alive, serving, wait_until

ARGUMENTS = ("--model-control-mode=explicit", "--load-model=witness")

_WITNESS = """
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def execute(self, requests):
            return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", r.inputs()[0].as_numpy())])
                    for r in requests]
"""

# Does what the request's id says, and otherwise tells its process. While there is a file `hold`
# it does not get past `initialize`.
_VICTIM = """
    import asyncio
    import ctypes
    import multiprocessing
    import os
    import signal
    import subprocess
    import sys
    import time

    import numpy as np
    import triton_python_backend_utils as pb_utils


    def answer(y):
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", y)])


    class TritonPythonModel:
        def initialize(self, args):
            self.directory = args["model_repository"]
            if os.path.exists(self.path("broken")):
                raise ValueError("no second start")
            while os.path.exists(self.path("hold")):
                time.sleep(0.002)

        def path(self, name):
            return os.path.join(self.directory, name)

        def execute(self, requests):
            answers = []
            for self.request in requests:
                what = getattr(self, self.request.request_id() or "pid")
                answers.append(what(self.request.inputs()[0].as_numpy()))
            return answers[0] if what.__name__.startswith("returns") else answers

        def pid(self, x):
            return answer(np.array([os.getpid()], np.float32))

        # -- ways to end

        def exits(self, x):
            os._exit(3)

        def crashes(self, x):
            ctypes.string_at(0)

        def aborts(self, x):
            os.abort()

        def kills_itself(self, x):
            os.kill(os.getpid(), signal.SIGKILL)

        def notes(self, x):
            with open(self.path("noted"), "a") as file:
                file.write(f"{int(x.flat[0])} ")
            return answer(x)

        def notes_and_exits(self, x):
            self.notes(x)
            os._exit(3)

        def closes_files(self, x):
            os.closerange(3, 4096)
            time.sleep(1000)

        def waits(self, x):
            open(self.path("waiting"), "w").close()
            while True:
                time.sleep(0.002)

        def loops(self, x):
            while True:
                pass

        def leaves_a_fork(self, x):
            multiprocessing.get_context("fork").Process(target=time.sleep, args=(1000,)).start()
            os.kill(os.getpid(), signal.SIGKILL)

        def has_children(self, x):
            fork = multiprocessing.get_context("fork").Process(target=time.sleep, args=(1000,))
            fork.start()
            program = subprocess.Popen(["sleep", "1000"])
            return answer(np.array([fork.pid, program.pid], np.float32))

        # -- ways to fail, and to go on

        def raises(self, x):
            raise ValueError("no answer")

        def raises_from(self, x):
            try:
                {}["key"]
            except KeyError as error:
                raise RuntimeError("no answer") from error

        def leaves(self, x):
            sys.exit("out of here")

        def gives_up(self, x):
            raise asyncio.CancelledError

        def recurses(self, x):
            return self.recurses(x)

        def raises_at_length(self, x):
            raise ValueError("long " * 20_000)

        def raises_bytes(self, x):
            raise ValueError(os.fsdecode(b"not \\xff text"))

        def answers_bytes(self, x):
            return pb_utils.InferenceResponse(
                error=pb_utils.TritonError(os.fsdecode(b"not \\xff text")))

        def parameters_of_bytes(self, x):
            tensors = [pb_utils.Tensor("Y", x)]
            return pb_utils.InferenceResponse(tensors, parameters={"k": os.fsdecode(b"\\xff")})

        def parameters_too_large(self, x):
            tensors = [pb_utils.Tensor("Y", x)]
            return pb_utils.InferenceResponse(tensors, parameters={"k": 1 << 70})

        def returns_none(self, x):
            return None

        def returns_nothing(self, x):
            return []

        def returns_too_much(self, x):
            return [answer(x), answer(x)]

        def returns_numbers(self, x):
            return [7]

        def answers_a_list(self, x):
            return pb_utils.InferenceResponse([pb_utils.Tensor("Y", x.tolist())])

        def answers_dates(self, x):
            return answer(np.array(["2024-01-01"], "datetime64[D]"))

        def answers_objects(self, x):
            return answer(np.array([object()], np.object_))

        def answers_arrays(self, x):
            return pb_utils.InferenceResponse([x])

        def answers_other_names(self, x):
            return pb_utils.InferenceResponse([pb_utils.Tensor("Z", x)])

        def answers_without_tensors(self, x):
            return pb_utils.InferenceResponse([])

        def reschedules(self, x):
            self.request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)

        def takes_memory(self, x):
            return answer(np.zeros((1, int(x.flat[0])), np.float32))

        def swaps(self, x):
            return answer(np.ones((1, int(x.flat[0])), ">f4"))

        def sends_a_text(self, x):
            return "no response"
"""

# Sends without end; with a request's id it does so until there is a file of that name.
_STREAMER = """
    import os
    import threading
    import time

    import numpy as np
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def initialize(self, args):
            self.directory = args["model_repository"]

        def execute(self, requests):
            for request in requests:
                threading.Thread(target=self.respond, args=(request,)).start()

        def respond(self, request):
            sender, number = request.get_response_sender(), os.getpid()
            gone = os.path.join(self.directory, request.request_id())
            while not sender.is_cancelled():
                tensor = pb_utils.Tensor("Y", np.array([number], np.float32))
                sender.send(pb_utils.InferenceResponse([tensor]))
            open(gone, "w").close()
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""

# Calls the model that the request's id names, and tells its error; after an answer, it ends.
_CALLER = """
    import os

    import numpy as np
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def execute(self, requests):
            return [self.respond(request) for request in requests]

        def respond(self, request):
            model, _, request_id = request.request_id().partition(" ")
            call = pb_utils.InferenceRequest(
                model_name=model, request_id=request_id, inputs=request.inputs(),
                requested_output_names=["Y"])
            for response in call.exec(decoupled=True):
                if response.has_error():
                    text = response.error().message()
                    return pb_utils.InferenceResponse(error=pb_utils.TritonError("told: " + text))
                os._exit(3)
"""

_HANGING = """
    import time


    class TritonPythonModel:
        @staticmethod
        def auto_complete_config(config):
            time.sleep(1000)

        def execute(self, requests):
            return []
"""

_LIMIT = 1 << 30
_LIMITED = parameter("penstock.memory_limit_bytes", _LIMIT)
_PAIRS = "max_batch_size: 2\ndynamic_batching { max_queue_delay_microseconds: 30000000 }"

MODELS = {
    "witness": PythonModel(_WITNESS),
    "victim": PythonModel(_VICTIM),
    "hurried": PythonModel(_VICTIM, config=parameter("penstock.execution_timeout_seconds", 1)),
    "pair": PythonModel(_VICTIM, instances=2),
    "limited": PythonModel(_VICTIM, config=_LIMITED),
    "batched": PythonModel(_VICTIM, "X:FP32[1]", config=f"{_LIMITED}\n{_PAIRS}"),
    "limit_wrong": PythonModel(_VICTIM, config=parameter("penstock.memory_limit_bytes", "1 GB")),
    "streamer": PythonModel(_STREAMER, config=DECOUPLED),
    "caller": PythonModel(_CALLER),
}


class Victim:
    """A model that is about to fail, freshly loaded."""

    def __init__(self, client: Client, repository: Path, name: str) -> None:
        self.name = name
        self.instance = f"{name}_0_0"
        self._client = client
        self._directory = repository / name
        for file in ("hold", "broken", "waiting"):
            (self._directory / file).unlink(missing_ok=True)
        client.load(name)

    def path(self, name: str) -> Path:
        return self._directory / name

    def pid(self) -> int:
        """The process of an instance."""
        return int(self._client.infer(self.name)["Y"][0])

    def hold(self) -> None:
        """Let no process come back."""
        self.path("hold").touch()

    def release(self) -> None:
        """Let it come back, and wait until it is there."""
        self.path("hold").unlink()
        wait_until(lambda: self._client.ready(self.name))

    def down(self, reason: str) -> str:
        """What a request to it is told while it is down for this reason."""
        model = f"model '{self.name}', instance '{self.instance}'"
        return f"{model}: its model process {reason}; it is being restarted"


@pytest.fixture
def victim(client: Client, repository: Path) -> Victim:
    return Victim(client, repository, "victim")


@pytest.fixture
def hurried(client: Client, repository: Path) -> Victim:
    """A victim with one second for an execution."""
    return Victim(client, repository, "hurried")


@pytest.fixture(autouse=True)
def _others_are_unaffected(client: Client) -> Iterator[None]:
    """Whatever a test does to its models, another one has never stopped to answer."""
    before = [client.begin("witness", {"X": floats(n)}) for n in range(3)]
    yield
    after = client.begin("witness", {"X": floats(3)})
    assert [order.result()["Y"][0] for order in (*before, after)] == [0, 1, 2, 3]


# -- the process ends -----------------------------------------------------------------------------

_ENDS = {
    "exits": "exited with status 3",
    "crashes": "was killed by signal 11 (SIGSEGV)",
    "aborts": "was killed by signal 6 (SIGABRT)",
    "kills_itself": "was killed by signal 9 (SIGKILL)",
    "leaves_a_fork": "was killed by signal 9 (SIGKILL)",
    "closes_files": "closed its link to the server",
}


@pytest.mark.contract("PY-07")
@pytest.mark.parametrize("way", _ENDS)
def test_model_that_ends_fails_its_request_and_comes_back(
    client: Client, victim: Victim, way: str
) -> None:
    former = victim.pid()
    victim.hold()
    error = client.refusal("victim", request_id=way)
    assert (error.code, error.message) == ("UNAVAILABLE", victim.down(_ENDS[way]))
    assert not client.ready("victim")
    assert not client.call("is_server_ready")
    assert client.infer("witness")["Y"].tolist() == [1]
    assert client.refusal("victim").message == victim.down(_ENDS[way])
    victim.release()
    assert client.call("is_server_ready")
    assert victim.pid() != former
    wait_until(lambda: not alive(former))


@pytest.mark.parametrize("way", ["loops", "waits"])
def test_execution_has_its_time(client: Client, hurried: Victim, way: str) -> None:
    hurried.hold()
    error = client.refusal("hurried", request_id=way)
    reason = "was stopped since an execution took longer than its limit of 1 s"
    assert (error.code, error.message) == ("UNAVAILABLE", hurried.down(reason))
    hurried.release()
    assert hurried.pid()


def test_no_request_is_executed_twice(client: Client, victim: Victim) -> None:
    """Quick executions are sent ahead, and answers may be lost that were not on their way."""
    asked = [(n, "notes_and_exits" if n in (60, 90) else "notes") for n in range(200)]
    orders = [client.begin("victim", {"X": floats(n)}, request_id=id) for n, id in asked]
    answered = {n for n, order in enumerate(orders) if _answered(order)}
    noted = [int(word) for word in victim.path("noted").read_text().split()]
    assert len(noted) == len(set(noted))
    assert answered == set(noted) & answered
    assert answered.isdisjoint({60, 90})


def _answered(order: Order) -> bool:
    try:
        order.result()
    except RefusedError:
        return False
    return True


def test_idle_process_that_is_killed_comes_back(client: Client, victim: Victim) -> None:
    former = victim.pid()
    victim.hold()
    os.kill(former, signal.SIGKILL)
    wait_until(lambda: not client.ready("victim"))
    assert "SIGKILL" in client.refusal("victim").message
    victim.release()
    assert victim.pid() != former


def test_process_killed_while_it_streams_ends_the_streams_with_the_reason(
    client: Client, repository: Path
) -> None:
    streamer = Victim(client, repository, "streamer")
    streams = [client.stream("streamer", request_id=f"s{n}") for n in range(2)]
    pid = {int(next(iter(stream))["Y"][0]) for stream in streams for _ in range(3)}.pop()
    os.kill(pid, signal.SIGKILL)
    messages = {stream.error().message for stream in streams}
    assert messages == {streamer.down("was killed by signal 9 (SIGKILL)")}
    wait_until(lambda: client.ready("streamer"))
    stream = client.stream("streamer", request_id="again")
    assert stream.result()["Y"][0] != pid
    stream.cancel()


@pytest.mark.contract("PY-07", "PY-42")
def test_another_instance_goes_on(client: Client, repository: Path) -> None:
    pair = Victim(client, repository, "pair")
    pids = {pair.pid() for _ in range(4)}
    assert len(pids) == 2
    pair.hold()
    killed = pids.pop()
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: not client.ready("pair"))
    assert {pair.pid() for _ in range(4)} == pids
    pair.release()
    assert len({pair.pid() for _ in range(4)}) == 2


@pytest.mark.contract("W-10")
def test_process_that_stops_reading_is_not_ready_and_runs_out_of_time(
    client: Client, hurried: Victim
) -> None:
    os.kill(hurried.pid(), signal.SIGSTOP)
    assert not client.ready("hurried")
    hurried.hold()
    error = client.refusal("hurried", {"X": floats(*range(1 << 18))})
    assert "longer than its limit of 1 s" in error.message
    hurried.release()


def test_model_that_fails_too_often_stays_down_and_says_why(client: Client, victim: Victim) -> None:
    for _ in range(4):
        assert "; it is being restarted" in client.refusal("victim", request_id="exits").message
        wait_until(lambda: client.ready("victim"))
    last = client.refusal("victim", request_id="exits").message
    down = "its model process exited with status 3; it failed 5 times in 60 s and stays down"
    assert last == f"model 'victim', instance 'victim_0_0': {down}"
    assert client.refusal("victim").message == last
    assert not client.ready("victim")
    client.load("victim")
    assert victim.pid()


def test_model_that_cannot_be_started_again_says_why(client: Client, victim: Victim) -> None:
    victim.path("broken").touch()
    client.refusal("victim", request_id="exits")
    wait_until(lambda: "stays down" in client.refusal("victim").message)
    message = client.refusal("victim").message
    assert "could not be started again: ValueError: no second start\n\nAt:\n" in message
    assert f"{victim.path('1/model.py')}(22): initialize\n" in message
    victim.path("broken").unlink()
    client.load("victim")
    assert victim.pid()


def test_caller_of_a_model_that_ends_is_told(client: Client, victim: Victim) -> None:
    client.load("caller")
    error = client.refusal("caller", request_id="victim exits")
    assert error.message == "told: " + victim.down("exited with status 3")


def test_death_of_a_caller_cancels_what_it_asked_for(client: Client, repository: Path) -> None:
    gone = Victim(client, repository, "streamer").path("asked")
    client.load("caller")
    assert "exited with status 3" in client.refusal("caller", request_id="streamer asked").message
    wait_until(gone.exists)


# -- the process goes on --------------------------------------------------------------------------

_AT = "\n\nAt:\n  {path}("

_FAILURES = {
    "raises": "ValueError: no answer" + _AT,
    "raises_from": "\n\nCaused by: KeyError: 'key'" + _AT,
    "leaves": "SystemExit: out of here" + _AT,
    "gives_up": "CancelledError: ",
    "recurses": "RecursionError: maximum recursion depth exceeded",
    "raises_bytes": "ValueError: not ",
    "returns_none": "Expected a list in the execute return, found type '<class 'NoneType'>'.",
    "returns_nothing": "InferenceRequest(s) size is:1, and InferenceResponse(s) size is:0",
    "returns_too_much": "InferenceRequest(s) size is:1, and InferenceResponse(s) size is:2",
    "returns_numbers": "return list, found type '<class 'int'>'.",
    "sends_a_text": "return list, found type '<class 'str'>'.",
    "answers_a_list": "TypeError: Tensor 'Y' needs a numpy array, got <class 'list'>" + _AT,
    "answers_dates": "numpy dtype datetime64[D] has no tensor datatype" + _AT,
    "reschedules": "RELEASE_RESCHEDULE needs iterative sequences",
    "answers_arrays": "TypeError: expected a Tensor in output_tensors",
}


@pytest.mark.parametrize("way", _FAILURES)
def test_model_that_fails_is_asked_again(
    client: Client, repository: Path, pid: int, way: str
) -> None:
    error = client.refusal("victim", request_id=way)
    path = repository / "victim" / "1" / "model.py"
    start = "Failed to process the request(s) for model 'victim_0_0', message: "
    assert error.code == "INTERNAL"
    assert error.message.startswith(start)
    assert _FAILURES[way].format(path=path) in error.message
    assert client.ready("victim")
    assert int(client.infer("victim")["Y"][0]) == pid


@pytest.fixture(scope="module")
def pid(client: Client, repository: Path) -> int:
    """The process of a victim that is not going to end."""
    return Victim(client, repository, "victim").pid()


def test_error_of_any_length_is_told_at_least_in_part(client: Client, pid: int) -> None:
    error = client.refusal("victim", request_id="raises_at_length")
    assert error.code == "INTERNAL"
    assert "ValueError: long long" in error.message
    assert int(client.infer("victim")["Y"][0]) == pid


@pytest.mark.parametrize("way", ["answers_bytes", "parameters_of_bytes", "parameters_too_large"])
def test_answer_that_no_protocol_can_hold_is_an_error(client: Client, pid: int, way: str) -> None:
    error = client.refusal("victim", request_id=way)
    assert error.code == "INTERNAL"
    assert int(client.infer("victim")["Y"][0]) == pid


@pytest.mark.parametrize("way", ["answers_other_names", "answers_without_tensors"])
def test_output_that_is_missing_is_left_out(client: Client, pid: int, way: str) -> None:
    assert client.infer("victim", request_id=way).outputs == {}


# -- memory ---------------------------------------------------------------------------------------


def test_request_that_needs_more_memory_than_allowed_fails_alone(
    client: Client, repository: Path
) -> None:
    limited = Victim(client, repository, "limited")
    pid = limited.pid()
    error = client.refusal("limited", {"X": floats(_LIMIT // 4)}, request_id="takes_memory")
    assert error.code == "INTERNAL"
    assert "MemoryError: Unable to allocate 1.00 GiB" in error.message
    assert f"{limited.path('1/model.py')}(" in error.message
    assert limited.pid() == pid


def test_response_that_cannot_be_sent_fails_alone(client: Client, repository: Path) -> None:
    """There is memory for the one array, but not for its copy with the bytes in order."""
    Victim(client, repository, "batched")
    numbers = [floats(n).reshape(1, 1) for n in (4, _LIMIT // 6)]
    small, large = (client.begin("batched", {"X": n}, request_id="swaps") for n in numbers)
    assert small.result()["Y"].tolist() == [[1, 1, 1, 1]]
    assert "MemoryError" in large.error().message


def test_limit_of_memory_must_be_a_number(client: Client) -> None:
    with pytest.raises(RefusedError, match=r"'penstock\.memory_limit_bytes' must be a number of"):
        client.load("limit_wrong")


# -- the server ends ------------------------------------------------------------------------------


@pytest.fixture
def doomed(tmp_path: Path) -> Iterator[tuple[Served, list[int]]]:
    """A server whose models are busy in every way, and all processes that hang on it."""
    models = {
        "loop": PythonModel(_VICTIM),
        "parent": PythonModel(_VICTIM),
        "streamer": MODELS["streamer"],
        "hanging": PythonModel(_HANGING, config=None),
    }
    repository = write_models(tmp_path / "models", models)
    arguments = "--model-control-mode=explicit", "--exit-timeout-secs=1"
    with serving(repository, tmp_path / "log", *arguments) as server, Client(server.grpc) as client:
        for name in ("loop", "parent", "streamer"):
            client.load(name)
        children = client.infer("parent", request_id="has_children")["Y"].astype(int).tolist()
        client.begin("loop", request_id="waits")
        client.stream("streamer").result()
        before = len(server.family())
        client.begin_load("hanging")
        wait_until((repository / "loop" / "waiting").exists)
        wait_until(lambda: len(server.family()) > before)
        yield server, [*server.family(), *children]


def test_nothing_outlives_a_server_that_is_killed(doomed: tuple[Served, list[int]]) -> None:
    server, family = doomed
    assert all(map(alive, family))
    server.stop(signal.SIGKILL)
    wait_until(lambda: not any(map(alive, family)))


def test_nothing_outlives_a_server_that_stops(doomed: tuple[Served, list[int]]) -> None:
    server, family = doomed
    assert server.stop() == 0
    wait_until(lambda: not any(map(alive, family)))


def test_shared_memory_has_no_name(client: Client, server: Served, victim: Victim) -> None:
    client.infer("witness", {"X": floats(*range(1 << 16))})
    for pid in (server.process.pid, victim.pid()):
        maps = Path(f"/proc/{pid}/maps").read_text()
        assert "memfd:penstock-arena (deleted)" in maps
        assert "/dev/shm" not in maps


def test_http_clients_are_told_as_well(server: Served, victim: Victim) -> None:
    victim.hold()
    body = (
        b'{"id": "exits", "inputs": [{"name": "X", "datatype": "FP32", "shape": [1], "data": [1]}]}'
    )
    url = f"http://{server.http}/v2/models/victim/infer"
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(url, data=body, timeout=30)
    assert refused.value.code == 503
    assert "exited with status 3; it is being restarted" in refused.value.read().decode()
    victim.release()
