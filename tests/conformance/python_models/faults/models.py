"""Models that fail in every way, and what they are asked for."""

from __future__ import annotations

from pathlib import Path

from conformance.python_models.client import Client
from conformance.python_models.repository import DECOUPLED, PythonModel, parameter
from harness.serving import wait_until

EXPLICIT = ("--model-control-mode=explicit", "--load-model=witness")
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
    import contextlib
    import ctypes
    import multiprocessing
    import os
    import signal
    import socket
    import subprocess
    import sys
    import time

    import numpy as np
    import triton_python_backend_utils as pb_utils


    def answer(y):
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", y)])


    class Panic(BaseException):
        pass


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

        def closes_files_and_answers(self, x):
            os.closerange(3, 4096)
            return answer(x)

        def cannot_write(self, x):
            for number in map(int, os.listdir("/proc/self/fd")):
                with contextlib.suppress(OSError):
                    with socket.socket(fileno=os.dup(number)) as link:
                        link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
                        link.setblocking(False)
            return pb_utils.InferenceResponse(
                [pb_utils.Tensor("Y", x)], parameters={"k": "long" * (2 << 20)})

        def waits(self, x):
            open(self.path("waiting"), "w").close()
            while True:
                time.sleep(0.002)

        def computes(self, x):
            end = time.monotonic() + float(x.flat[0])
            while time.monotonic() < end:
                pass
            return answer(x)

        def holds_the_lock(self, x):
            ctypes.PyDLL(None).sleep(int(x.flat[0]))
            return answer(x)

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
            daemon = subprocess.Popen(["sleep", "1000"], start_new_session=True)
            return answer(np.array([fork.pid, program.pid, daemon.pid], np.float32))

        # -- ways to fail, and to go on

        def raises(self, x):
            raise ValueError("no answer")

        def refuses(self, x):
            raise pb_utils.TritonModelException("not today")

        def raises_from(self, x):
            try:
                {}["key"]
            except KeyError as error:
                raise RuntimeError("no answer") from error

        def leaves(self, x):
            sys.exit("out of here")

        def gives_up(self, x):
            raise asyncio.CancelledError

        def panics(self, x):
            raise Panic("of a library in Rust")

        def returns_from_a_fork(self, x):
            child = os.fork()
            if child == 0:
                raise ValueError("in a fork")
            os.waitpid(child, 0)
            return [self.pid(x)]

        def returns_twice(self, x):
            child = os.fork()
            if child == 0:
                return [answer(np.full(1 << 16, 7, np.float32))]
            _, status = os.waitpid(child, 0)
            return [answer(np.array([os.waitstatus_to_exitcode(status)], np.float32))]

        def recurses(self, x):
            return self.recurses(x)

        def raises_at_length(self, x):
            raise ValueError("long " * 20_000)

        def raises_bytes(self, x):
            raise ValueError(os.fsdecode(b"not \\xff text"))

        def answers_bytes(self, x):
            return pb_utils.InferenceResponse(
                error=pb_utils.TritonError(os.fsdecode(b"not \\xff text")))

        def parameters_in_bytes(self, x):
            tensors = [pb_utils.Tensor("Y", x)]
            return pb_utils.InferenceResponse(tensors, parameters={"k": b"bytes"})

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


LIMIT = 1 << 30
_LIMITED = parameter("penstock.memory_limit_bytes", LIMIT)
_PAIRS = "max_batch_size: 2\ndynamic_batching { max_queue_delay_microseconds: 30000000 }"
FAULTY = {
    "witness": PythonModel(_WITNESS),
    "victim": PythonModel(_VICTIM),
    "hurried": PythonModel(_VICTIM, config=parameter("penstock.execution_timeout_seconds", 2)),
    "freezing": PythonModel(_VICTIM, config=parameter("penstock.hang_seconds", 1)),
    "freezing_restarted": PythonModel(
        _VICTIM,
        config=f"{parameter('penstock.hang_seconds', 0.5)}"
        f"\n{parameter('penstock.restart_hung', 'true')}",
    ),
    "pair": PythonModel(_VICTIM, instances=2),
    "limited": PythonModel(_VICTIM, config=_LIMITED),
    "batched": PythonModel(_VICTIM, "X:FP32[1]", config=f"{_LIMITED}\n{_PAIRS}"),
    "limit_wrong": PythonModel(_VICTIM, config=parameter("penstock.memory_limit_bytes", "1 GB")),
    "streamer": PythonModel(_STREAMER, config=DECOUPLED),
    "caller": PythonModel(_CALLER),
}


def faulty(*names: str) -> dict[str, PythonModel]:
    """These models, and the one that is a witness of all."""
    return {name: FAULTY[name] for name in ("witness", *names)}


class Victim:
    """A model that is about to fail, freshly loaded."""

    def __init__(self, client: Client, repository: Path, name: str) -> None:
        self.name = name
        self.instance = f"{name}_0_0"
        self._client = client
        self._directory = repository / name
        for file in ("hold", "broken", "waiting"):
            (self._directory / file).unlink(missing_ok=True)
        self.path("1/model.py").touch()  # what has not changed would be left as it is
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
