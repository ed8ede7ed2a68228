"""The options of `penstock perf`, as values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock_client.perf.load.plan import Limits, Point
from penstock_client.perf.requests.kserve import Parameter
from penstock_client.perf.requests.lengths import Lengths
from penstock_client.perf.requests.prompts import SharedPrefix
from penstock_client.perf.requests.tensors import TensorOptions
from penstock_client.perf.summary import Goal
from penstock_client.perf.wire.endpoint import Endpoint
from penstock_client.reading.address import Address

INFER, GENERATE = "infer", "generate"
GRPC, HTTP, OPENAI = "grpc", "http", "openai"
STDOUT = Path("-")


@dataclass(frozen=True, slots=True)
class Target:
    """A server: where it listens, what stands before paths, and where its metrics are."""

    endpoint: Endpoint
    prefix: str = ""
    metrics: Address | None = None
    pid: int = 0


@dataclass(frozen=True, slots=True)
class Prompts:
    """Prompts to make, or to read from `texts`; a trace gives `lengths` of each and its answer."""

    texts: tuple[str, ...] = ()
    words: Lengths | None = None
    output: Lengths | None = None
    prefix: SharedPrefix | None = None
    count: int = 256
    lengths: tuple[tuple[int, int], ...] = ()

    @property
    def wanted(self) -> bool:
        """Whether requests are prompts."""
        return bool(self.texts or self.words or self.output or self.prefix or self.lengths)


@dataclass(frozen=True, slots=True)
class SequenceOptions:
    """Sequences: how many at a time, of what length, which varies by so many percent."""

    count: int = 0
    length: int = 20
    variation: float = 20.0
    first_id: int = 1
    ids: int = 1 << 31


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """Options of requests: the model, the protocol and the inputs.

    Where `json_inputs` or `json_outputs` is `None`, tensors go over HTTP as the server takes them.
    """

    model: str
    version: str = ""
    wire: str = GRPC
    endpoint: str = ""
    streamed: bool = False
    batch: int = 1
    input_file: Path | None = None
    tensors: TensorOptions = field(default_factory=TensorOptions)
    prompts: Prompts = field(default_factory=Prompts)
    sequences: SequenceOptions = field(default_factory=SequenceOptions)
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    json_inputs: bool | None = None
    json_outputs: bool | None = None
    shared_memory: bool = False
    output_size: int = 102400
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Outputs:
    """Files for results, beside the terminal; `gate` is one to read."""

    json: Path | None = None
    csv: Path | None = None
    html: Path | None = None
    requests: Path | None = None
    gate: Path | None = None
    quiet: bool = False

    @property
    def files(self) -> Iterator[Path]:
        """The files that are written, without the standard output."""
        for file in (self.json, self.csv, self.html, self.requests):
            if file is not None and file != STDOUT:
                yield file


@dataclass(frozen=True, slots=True)
class Options:
    """The whole command line. With two `targets` they are compared, in so many `rounds`."""

    targets: Sequence[Target]
    request: RequestOptions
    points: Sequence[Point]
    limits: Limits
    goals: Sequence[Goal] = ()
    outputs: Outputs = field(default_factory=Outputs)
    rounds: int = 10
    words: Sequence[str] = ()
