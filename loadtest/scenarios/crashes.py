"""What users report of Triton's Python backend, on this server and on the real one.

    python -m loadtest.scenarios.crashes --seconds 120 [--peer "COMMAND"] [--cases REGEX]

COMMAND starts the other server in the foreground and takes Triton's options, which are added. Each
case has a server of its own, whose answers are all compared: one that dies is the end of its case.
The numbers of cases are those of issues of the project triton-inference-server/server.
"""

from __future__ import annotations

import os
import random
import re
import shlex
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from numpy.typing import NDArray

from loadtest.crash_models import write_crash_models
from loadtest.report import Row, arguments, show
from loadtest.soak.server import Server, running
from loadtest.soak.watch import Watch, below, memory
from penstock.protocol import grpc_service_pb2 as pb

Floats = NDArray[np.float32]

PATIENCE = 60.0
"""Seconds after which a call without an outcome is lost."""

_SERVICE = "/inference.GRPCInferenceService/"
_OPTIONS = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
_KILLED_FOR = 60.0
"""Seconds in which a model whose process was killed may come back."""


@dataclass(slots=True)
class Tally:
    """How the calls of a case ended; `expected` are errors that the case is about."""

    right: int = 0
    wrong: int = 0
    expected: int = 0
    lost: int = 0
    unexpected: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, outcome: str, text: str = "") -> None:
        """`outcome` is the name of a field."""
        with self._lock:
            if outcome == "unexpected":
                self.unexpected[text] += 1
            else:
                setattr(self, outcome, getattr(self, outcome) + 1)

    @property
    def calls(self) -> int:
        return self.right + self.wrong + self.expected + self.lost + self.unexpected.total()


Call = Callable[[grpc.Channel, random.Random, Tally], None]
"""Makes one call, and counts how it ended."""


@dataclass(frozen=True, slots=True)
class Case:
    """A kind of report: its issues, the models, and how many clients make which calls.

    `rest` are seconds between two calls of a client.
    """

    name: str
    issues: str
    models: tuple[str, ...]
    clients: tuple[tuple[int, Call], ...]
    rest: float = 0.0


# -- calls ----------------------------------------------------------------------------------------


def _message(model: str, values: Floats | Sequence[bytes]) -> pb.ModelInferRequest:
    message = pb.ModelInferRequest(model_name=model)
    if isinstance(values, np.ndarray):
        message.inputs.add(name="X", datatype="FP32", shape=values.shape)
        message.raw_input_contents.append(values.tobytes())
    else:
        message.inputs.add(name="X", datatype="BYTES", shape=[len(values)])
        message.raw_input_contents.append(_elements(values))
    return message


def _elements(texts: Sequence[bytes]) -> bytes:
    return b"".join(len(text).to_bytes(4, "little") + text for text in texts)


def _infer(channel: grpc.Channel, message: pb.ModelInferRequest, timeout: float) -> bytes:
    answer: pb.ModelInferResponse = channel.unary_unary(
        f"{_SERVICE}ModelInfer",
        pb.ModelInferRequest.SerializeToString,
        pb.ModelInferResponse.FromString,
    )(message, timeout=timeout)
    return bytes(answer.raw_output_contents[0])


def _floats(chance: random.Random, least: int = 6) -> Floats:
    """Of a few numbers up to 256 KiB: shared memory is taken in pieces of all sizes."""
    return np.full(int(2 ** chance.uniform(0, 16)) + least, chance.randrange(1000), np.float32)


def _counted(
    tally: Tally, call: Callable[[], bytes], right: bytes, expected: Sequence[str] = ()
) -> None:
    """Count one call, whose errors are `expected` where their text holds one of these."""
    try:
        answer = call()
    except grpc.RpcError as error:
        text = f"{error.code().name}: {error.details()}"
        if any(part in text for part in expected):
            tally.count("expected")
        elif error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            tally.count("lost")
        else:
            tally.count("unexpected", text[:200])
    else:
        tally.count("right" if answer == right else "wrong")


def chain(channel: grpc.Channel, chance: random.Random, tally: Tally) -> None:
    array = _floats(chance)
    right = np.tile(array + 1, 2) + 1
    _counted(tally, lambda: _infer(channel, _message("chain", array), PATIENCE), right.tobytes())


def gather(channel: grpc.Channel, chance: random.Random, tally: Tally) -> None:
    array = _floats(chance)
    right = (array + 1).tobytes()
    _counted(tally, lambda: _infer(channel, _message("gather", array), PATIENCE), right)


def letters(channel: grpc.Channel, chance: random.Random, tally: Tally) -> None:
    texts = [b"text" * chance.randrange(400) for _ in range(chance.randrange(1, 20))]
    right = _elements([text.upper() for text in texts])
    _counted(tally, lambda: _infer(channel, _message("letters", texts), PATIENCE), right)


def fan(channel: grpc.Channel, chance: random.Random, tally: Tally) -> None:
    number = chance.randrange(1, 8)
    message = _message("fan", np.array([number], np.float32))
    right = np.array([40 * number], np.float32).tobytes()
    _counted(tally, lambda: _infer(channel, message, PATIENCE), right)


def raises(channel: grpc.Channel, chance: random.Random, tally: Tally) -> None:
    array = _floats(chance) * chance.choice((1, -1)) - np.float32(0.5)
    message = _message("raises", array)
    expected = ["it is negative"] if array[0] < 0 else []
    _counted(tally, lambda: _infer(channel, message, PATIENCE), array.tobytes(), expected)


def hasty(channel: grpc.Channel, chance: random.Random, tally: Tally) -> None:
    """Who asks whether the model is ready, what it is like, and for an answer, each within ms."""
    array = _floats(chance)
    right = (array + 1).tobytes()
    left = ("DEADLINE_EXCEEDED", "CANCELLED")
    seconds = chance.uniform(0.001, 0.004)
    kind = chance.randrange(4)
    if kind < 2:
        _counted(tally, lambda: _infer(channel, _message("step", array), seconds), right, left)
        return
    name = ("ModelReady", "ModelMetadata")[kind - 2]
    request = getattr(pb, f"{name}Request")(name="step")
    method = channel.unary_unary(
        _SERVICE + name, type(request).SerializeToString, lambda data: data and b"answer"
    )
    _counted(tally, lambda: bytes(method(request, timeout=seconds)), b"answer", left)


def leaving(channel: grpc.Channel, chance: random.Random, tally: Tally) -> None:
    """Who leaves a stream of responses somewhere between the first and the last."""
    streaming = channel.stream_stream(
        f"{_SERVICE}ModelStreamInfer",
        pb.ModelInferRequest.SerializeToString,
        pb.ModelStreamInferResponse.FromString,
    )
    message = _message("count", np.array([20], np.float32))

    def first() -> bytes:
        call: Any = streaming(iter([message]), timeout=PATIENCE)
        numbers: list[bytes] = []
        for answer, _ in zip(call, range(chance.randrange(1, 20)), strict=False):
            numbers += answer.infer_response.raw_output_contents
        call.cancel()
        return numbers[0]

    _counted(tally, first, np.zeros(1, np.float32).tobytes())


def killed(channel: grpc.Channel, chance: random.Random, tally: Tally) -> None:
    """Kill the process of a model, and ask until there is another: `expected` while there is none.

    `wrong` is a model that is said to be ready all the while; `lost` is one that does not come.
    """
    message = _message("who", np.zeros(1, np.float32))
    try:
        pid = int(np.frombuffer(_infer(channel, message, PATIENCE), np.float32)[0])
    except grpc.RpcError:
        tally.count("lost")  # of the kill before
        return
    os.kill(pid, signal.SIGKILL)
    end, ready = time.monotonic() + _KILLED_FOR, []
    while time.monotonic() < end:
        with suppress(grpc.RpcError):
            if int(np.frombuffer(_infer(channel, message, 5.0), np.float32)[0]) != pid:
                tally.count("right")
                return
        tally.count("expected")
        with suppress(grpc.RpcError):
            ready.append(_is_ready(channel))
        time.sleep(0.1)
    tally.count("lost")
    if ready and all(ready):
        tally.count("wrong")


def _is_ready(channel: grpc.Channel) -> bool:
    request = pb.ModelReadyRequest(name="who")
    answer: pb.ModelReadyResponse = channel.unary_unary(
        f"{_SERVICE}ModelReady",
        pb.ModelReadyRequest.SerializeToString,
        pb.ModelReadyResponse.FromString,
    )(request, timeout=5.0)
    return answer.ready


CASES: Sequence[Case] = (
    Case(
        "BLS of three kinds at once",
        "8882",
        ("step", "twice", "upper", "chain", "letters", "gather"),
        ((8, chain), (8, gather), (4, letters)),
    ),
    Case("forty streams of async BLS at once", "8922, 8917", ("count", "fan"), ((8, fan),)),
    Case("errors of BLS that are raised", "7481", ("fails", "raises"), ((8, raises),)),
    Case("deadlines of 1 to 4 ms", "7368", ("step", "count"), ((16, hasty), (4, leaving))),
    # Five deaths in a minute would keep the model down here.
    Case("a process that is killed", "8604", ("who",), ((1, killed),), rest=16.0),
)


# -- a case on a server ---------------------------------------------------------------------------


def drive(
    case: Case,
    target: str,
    seconds: float,
    calls: int = 1 << 60,
    stopped: threading.Event | None = None,
    seed: int = 7,
) -> Tally:
    """Have the case's clients call for so long, each at most so often, and tell how it went."""
    tally, end = Tally(), time.monotonic() + seconds
    stopped = stopped or threading.Event()

    def client(call: Call, number: int) -> None:
        chance = random.Random(seed * 1000 + number)
        with grpc.insecure_channel(target, options=_OPTIONS) as channel:
            for made in range(calls):
                if made and case.rest:
                    stopped.wait(case.rest)
                if stopped.is_set() or time.monotonic() > end:
                    return
                call(channel, chance, tally)

    kinds = [call for count, call in case.clients for _ in range(count)]
    threads = [
        threading.Thread(target=client, args=(call, number)) for number, call in enumerate(kinds)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return tally


def measured(case: Case, command: Sequence[str], seconds: float) -> Row:
    """A row of a server that is started for it."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        models = write_crash_models(folder / "models", *case.models)
        with running(models, folder, command, options=()) as server, _watched(server) as watch:
            target, began = f"127.0.0.1:{server.grpc_port}", time.monotonic()
            # What is made once, first; a server may die of it.
            tally = drive(case, target, 5.0, 0 if case.rest else 20, watch.dead)
            watch.begin()
            if not watch.dead.is_set():
                began = time.monotonic()
                tally = drive(case, target, seconds, stopped=watch.dead)
            took = (watch.died or time.monotonic()) - began
            watch.end()
            lives = server.process.poll() is None
        left = watch.left_behind()
        for text, count in tally.unexpected.most_common(3):
            print(f"    {count} x {text}", flush=True)
        status = server.process.returncode
        if left or status:
            print(f"    ended with status {status}, left behind: {left}", flush=True)
        return {
            "case": case.name,
            "issues": case.issues,
            "server": "Triton" if command else "Penstock",
            "s": f"{took:.0f}",
            "calls": str(tally.calls),
            "right": str(tally.right),
            "expected": str(tally.expected),
            "wrong": str(tally.wrong),
            "lost": str(tally.lost),
            "unexpected": str(tally.unexpected.total()),
            "memory": f"{watch.memory[0]:.0f} -> {watch.memory[1]:.0f}",
            "shared": f"{watch.shared[0]:.1f} -> {watch.shared[1]:.1f}",
            "server lives": "yes" if lives else "no",
            "status": str(status),
            "left": str(len(left)),
        }


class _ServerWatch:
    """Memory of all processes of a server in MiB at begin and end, and whether it has died."""

    def __init__(self, server: Server) -> None:
        self.dead = threading.Event()
        self.died = 0.0  # by the monotonic clock
        self.memory, self.shared = [0.0, 0.0], [0.0, 0.0]
        self._server, self._watch = server, Watch(server.process.pid)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def begin(self) -> None:
        self._measure(0)

    def end(self) -> None:
        if not self.dead.is_set():
            self._measure(1)

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def left_behind(self) -> list[str]:
        """What is there after the server has ended; it is removed."""
        left = self._watch.left()
        for pid in self._watch.living():
            os.kill(pid, signal.SIGKILL)
        for path in self._watch.shared:
            Path(path).unlink(missing_ok=True)
        return left

    def _look(self) -> None:
        while not self._over.wait(0.2):
            if self._server.process.poll() is not None:
                self.died = time.monotonic()
                self.dead.set()
                return
            self._watch.look()

    def _measure(self, at: int) -> None:
        family = [self._server.process.pid, *below(self._server.process.pid)]
        self.memory[at] = sum(map(memory, family))
        self.shared[at] = shared_bytes(family) / (1 << 20)


@contextmanager
def _watched(server: Server) -> Iterator[_ServerWatch]:
    watch = _ServerWatch(server)
    try:
        yield watch
    finally:
        watch.close()


def shared_bytes(pids: Sequence[int]) -> int:
    """What the shared memory that these processes hold takes, each object once."""
    objects: dict[tuple[int, int], int] = {}
    for pid in pids:
        held = [*Path(f"/proc/{pid}/fd").glob("*")]
        with suppress(OSError):
            mapped = re.findall(r" (/dev/shm/\S+)", Path(f"/proc/{pid}/maps").read_text())
            held += map(Path, set(mapped))
        for path in held:
            with suppress(OSError):
                link = os.readlink(path) if path.parts[1] == "proc" else str(path)
                if link.startswith(("/memfd:", "/dev/shm/")):
                    found = path.stat()
                    objects[found.st_dev, found.st_ino] = found.st_blocks * 512
    return sum(objects.values())


def _measured_at_last(case: Case, command: Sequence[str], seconds: float, tries: int = 3) -> Row:
    """A server that starts slowly may find its ports taken meanwhile: it has others then."""
    for _ in range(tries - 1):
        with suppress(SystemExit):
            return measured(case, command, seconds)
    return measured(case, command, seconds)


def main() -> None:
    parser = arguments(__doc__)
    parser.set_defaults(seconds=120.0)
    parser.add_argument("--peer", default="", help="command that starts the other server")
    parser.add_argument("--peer-only", action="store_true", help="leave this server out")
    parser.add_argument("--cases", default="", help="regular expression of issues or names")
    options = parser.parse_args()
    commands: list[Sequence[str]] = [] if options.peer_only else [()]
    if options.peer:
        commands.append(shlex.split(options.peer))
    rows: list[Row] = []
    for case in CASES:
        if re.search(options.cases, f"{case.issues} {case.name}"):
            for command in commands:
                rows.append(_measured_at_last(case, command, options.seconds))
                print(rows[-1], flush=True)
    show("Reports of crashes", rows, options.json)


if __name__ == "__main__":
    main()
