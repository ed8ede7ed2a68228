"""Python models that call other models, and those that they call."""

from __future__ import annotations

from conformance.python_models.bls import callers as by
from conformance.python_models.bls.called import MEETING, NEGATE
from conformance.python_models.repeat import REPEAT
from conformance.python_models.repository import DECOUPLED, PythonModel


def _serial(body: str) -> str:
    """A model that answers each request by the lines of `body`, which see `request` and `x`."""
    return _model("def", "return [self.respond(r, x_of(r)) for r in requests]", "def", body)


def _coroutine(body: str) -> str:
    """As `_serial`, with coroutines."""
    execute = "return await asyncio.gather(*(self.respond(r, x_of(r)) for r in requests))"
    return _model("async def", f"return list({execute.removeprefix('return ')})", "async def", body)


def _model(first: str, execute: str, second: str, body: str) -> str:
    lines = [
        "class TritonPythonModel:",
        "    def initialize(self, args):",
        "        self.args = args",
        "",
        f"    {first} execute(self, requests):",
        f"        {execute}",
        "",
        f"    {second} respond(self, request, x):",
        *(f"        {line}" for line in body.strip("\n").splitlines()),
    ]
    return by.HEAD + "\n".join("    " + line for line in lines) + "\n"


MODELS = {
    "negate": PythonModel(NEGATE),
    "matrix": PythonModel(NEGATE, inputs="X:FP32[2, 2]"),
    "meeting": PythonModel(MEETING, instances=2),
    "repeat": PythonModel(REPEAT, config=DECOUPLED),
    "gated": PythonModel(_serial(by.GATED)),
    "caller": PythonModel(_serial(by.CALLER)),
    "other_text": PythonModel(_serial(by.OTHER_TEXT)),
    "async": PythonModel(_coroutine(by.ASYNC)),
    "async_streams": PythonModel(_coroutine(by.ASYNC_STREAMS)),
    "threads": PythonModel(_serial(by.THREADS)),
    "sum": PythonModel(_serial(by.SUM)),
    "async_sum": PythonModel(_coroutine(by.ASYNC_SUM)),
    "async_sums": PythonModel(_coroutine(by.ASYNC_SUMS)),
    "async_fan": PythonModel(_coroutine(by.ASYNC_FAN)),
    "take_three": PythonModel(_serial(by.TAKE_THREE)),
    "polite": PythonModel(by.POLITE, config=DECOUPLED),
    "cancelled": PythonModel(_serial(by.CANCELLED)),
    "own_loop": PythonModel(_serial(by.OWN_LOOP)),
    "take_none": PythonModel(_serial(by.TAKE_NONE)),
    "leave_the_loop": PythonModel(_serial(by.LEAVE_THE_LOOP)),
    "no_patience": PythonModel(_coroutine(by.NO_PATIENCE)),
    "often": PythonModel(_serial(by.OFTEN)),
    "language": PythonModel(_serial(by.LANGUAGE), "PROMPT:STRING[1] X:FP32[1]", "TEXT:STRING[1]"),
    "language_less": PythonModel(
        _serial(by.LANGUAGE_LESS), "PROMPT:STRING[1] X:FP32[1]", "TEXT:STRING[1]"
    ),
    "self": PythonModel(_serial(by.SELF)),
    "two_versions": PythonModel(
        _serial(by.NEXT_VERSION),
        config="version_policy { all {} }",
        files={"../2/model.py": NEGATE},
    ),
    "ping": PythonModel(_serial(by.OTHER)),
    "pong": PythonModel(_serial(by.OTHER)),
    "self_async": PythonModel(_coroutine(by.ASYNC_SELF)),
    "self_three": PythonModel(_serial(by.SELF), instances=3),
    "blocked_loop": PythonModel(by.BLOCKED_LOOP, config=DECOUPLED),
    "asks_on": PythonModel(by.ASKS_ON, config=DECOUPLED),
    "at_the_wrong_time": PythonModel(by.AT_THE_WRONG_TIME, outputs="TEXT:STRING[1]"),
}
