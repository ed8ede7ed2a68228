"""Asks a server through the stock client, which runs in a process of its own."""

from __future__ import annotations

import pickle
import queue
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Arrays = Mapping[str, Array]

_PROGRAM = Path(__file__).with_name("client_program.py")
_PATIENCE = 60.0


@dataclass(frozen=True, slots=True)
class Answer:
    """One response: its tensors and its parameters, without the client's own."""

    outputs: dict[str, Array]
    parameters: dict[str, Any]

    def __getitem__(self, name: str) -> Array:
        return self.outputs[name]


class RefusedError(Exception):
    """The server answered with an error: its code and its text."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class Order:
    """Something that was asked; iterating gives what comes, as it comes."""

    def __init__(self, client: Client, number: int) -> None:
        self._client = client
        self._number = number
        self.events: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()

    def __iter__(self) -> Iterator[Any]:
        while (event := self.next_event()) is not None:
            yield event

    def next_event(self, timeout: float = _PATIENCE) -> Any:
        """The next answer or value; `None` at the end. Raises errors, and `queue.Empty` in time."""
        kind, *what = self.events.get(timeout=timeout)
        if kind == "error":
            raise RefusedError(*what)
        if kind == "answer":
            outputs, parameters = what
            return Answer(outputs, parameters)
        return what[0] if kind == "value" else None

    def result(self, timeout: float = _PATIENCE) -> Any:
        """The one thing that comes."""
        return self.next_event(timeout)

    def error(self, timeout: float = _PATIENCE) -> RefusedError:
        """The error that ends it; responses before it are passed over."""
        try:
            while self.next_event(timeout) is not None:
                pass
        except RefusedError as error:
            return error
        raise AssertionError("there was no error")

    def cancel(self) -> None:
        """Want no more."""
        self._client.tell(self._number, "cancel", {})


class Client:
    """A process with the stock client, connected to one server."""

    def __init__(self, target: str, flavour: str = "grpc") -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(_PROGRAM), flavour, target],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._numbers = 0
        self._orders: dict[int, Order] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Self:
        self._reader.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process.wait()

    # -- asking -------------------------------------------------------------------------------

    def infer(self, model: str, inputs: Arrays | None = None, **options: Any) -> Answer:
        """The model's one answer; raises what the server refuses."""
        answer: Answer = self.begin(model, inputs, **options).result()
        return answer

    def begin(self, model: str, inputs: Arrays | None = None, **options: Any) -> Order:
        """As `infer`, without waiting."""
        return self._order("infer", model_name=model, inputs=_inputs(inputs), **options)

    def stream(self, model: str, inputs: Arrays | None = None, **options: Any) -> Order:
        """The answers of a request on a stream of its own."""
        return self._order("stream", model_name=model, inputs=_inputs(inputs), **options)

    def talk(self, model: str, requests: Iterable[tuple[Arrays, Mapping[str, Any]]]) -> Order:
        """The answers to several requests on one stream; each comes with its options."""
        spoken = [{"model_name": model, "inputs": _inputs(i), **options} for i, options in requests]
        return self._order("talk", requests=spoken)

    def answers(self, model: str, inputs: Arrays | None = None, **options: Any) -> list[Answer]:
        """All answers of a request, without the empty one that ends them."""
        return [a for a in self.stream(model, inputs, **options) if a.outputs]

    def refusal(self, model: str, inputs: Arrays | None = None, **options: Any) -> RefusedError:
        """The error that a request ends with."""
        return self.begin(model, inputs, **options).error()

    def call(self, method: str, **arguments: Any) -> Any:
        """What another method of the stock client returns."""
        return self._order("call", method=method, **arguments).result()

    def ready(self, model: str) -> bool:
        """Whether the server says that the model is ready."""
        return bool(self.call("is_model_ready", model_name=model))

    def begin_ready(self, model: str) -> Order:
        """As `ready`, without waiting."""
        return self._order("call", method="is_model_ready", model_name=model)

    def config(self, model: str) -> Any:
        """The model's configuration as a dict."""
        return self.call("get_model_config", model_name=model, as_json=True)["config"]

    def load(self, model: str, **arguments: Any) -> None:
        self.call("load_model", model_name=model, **arguments)

    def begin_load(self, model: str) -> Order:
        """As `load`, without waiting."""
        return self._order("call", method="load_model", model_name=model)

    def unload(self, model: str) -> None:
        self.call("unload_model", model_name=model)

    # -- the process --------------------------------------------------------------------------

    def tell(self, number: int, verb: str, arguments: Mapping[str, Any]) -> None:
        """Give the process an order."""
        assert self._process.stdin is not None
        pickle.dump((number, verb, dict(arguments)), self._process.stdin)
        self._process.stdin.flush()

    def _order(self, verb: str, **arguments: Any) -> Order:
        self._numbers += 1
        order = self._orders[self._numbers] = Order(self, self._numbers)
        self.tell(self._numbers, verb, arguments)
        return order

    def _read(self) -> None:
        assert self._process.stdout is not None
        try:
            while True:
                number, event = pickle.load(self._process.stdout)
                self._orders[number].events.put(event)
        except EOFError:
            for order in self._orders.values():
                order.events.put(("end",))


def _inputs(inputs: Arrays | None) -> dict[str, Array]:
    """One number where a test does not care."""
    return dict(inputs) if inputs is not None else {"X": np.ones(1, np.float32)}


def strings(*values: str | bytes) -> Array:
    """A tensor of BYTES."""
    array = np.empty(len(values), np.object_)
    array[:] = [v.encode() if isinstance(v, str) else v for v in values]
    return array


def floats(*values: float) -> Array:
    return np.array(values, np.float32)


def ints(*values: int) -> Array:
    return np.array(values, np.int32)
