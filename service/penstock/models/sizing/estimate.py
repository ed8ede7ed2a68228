"""`ModelEstimate`: what one model takes of each device, in parts, as its configuration has it."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from math import ceil, prod
from pathlib import Path
from typing import Any, Final

from penstock.core.config import InstanceKind, ModelConfig
from penstock.core.errors import ModelLoadError
from penstock.core.turns import SWITCH_INTERVAL
from penstock.models.config.defaults import normalized
from penstock.models.sizing.kv_cache import (
    Attention,
    EngineSettings,
    read_attention,
    read_json,
)
from penstock.models.sizing.weights import Weights, read_weights

HOST: Final = "host"
"""The device that is no GPU: the machine's memory."""

ASSUMED: Final = "assumed"
"""The backend of models that are not there, of which nothing but the size is known."""

_MIB = 1 << 20
_TABLE = Path(__file__).with_name("engines.toml")
_SETTINGS = "model.json"
_TOKENIZER = "penstock.tokenizer"
_SHARE = "share_session_between_instances"
_UNKNOWN_DIMENSION = 256
"""Taken for a dimension of a tensor that varies."""
_ELSEWHERE = "it has instances on GPUs that are not there: --device says which there are"
_BUFFERS = 4
"""How often a tensor model has its tensors at once: as they came, joined, between layers, split."""
_WIDE = 8
"""Bytes of a number between the layers of a language model on a CPU: FP32, twice."""
_BATCHED = 2048
"""Tokens of a step of a language model whose settings do not say."""


@dataclass(frozen=True, slots=True)
class Engine:
    """What an engine takes beside weights and cache: a row of `engines.toml`, in bytes."""

    host: str
    device: str = ""
    process: int = 0
    instance: int = 0
    context: int = 0
    shared: bool = False
    weights: Mapping[str, float] = field(default_factory=dict)
    fraction: float | None = None
    tokens: int = 0
    cache: int = 0
    dtype: str = ""

    @classmethod
    def of(cls, backend: str) -> Engine:
        """The engine of a backend; of one that is not in the table, that of a process of Python."""
        return _engines().get(backend) or _engines()["default"]

    def loaded(self, weights: Weights, device: str) -> Weights:
        """The weights as they are in memory."""
        if device != HOST or not self.weights:
            return weights
        other = self.weights.get("any", 1.0)
        return {dtype: int(n * self.weights.get(dtype, other)) for dtype, n in weights.items()}


@cache
def _engines() -> Mapping[str, Engine]:
    rows = _table()["engine"].items()
    in_mib = ("process", "instance", "context", "cache")
    return {
        name: Engine(**{key: v * _MIB if key in in_mib else v for key, v in row.items()})
        for name, row in rows
    }


@cache
def _table() -> Mapping[str, Any]:
    return tomllib.loads(_TABLE.read_text("utf-8"))


def server_bytes() -> int:
    """What the server's process takes without any model."""
    return int(_table()["server"] * _MIB)


@dataclass(frozen=True, slots=True)
class Parts:
    """What a model takes of one device, in bytes; weights of all its copies, by data type.

    `reserved` is what its engine takes altogether, whatever it needs.
    """

    weights: Weights = field(default_factory=dict)
    kv_cache: int = 0
    activations: int = 0
    runtime: int = 0
    reserved: int = 0

    @property
    def total(self) -> int:
        """What is needed, without headroom."""
        return sum(self.weights.values()) + self.kv_cache + self.activations + self.runtime

    @property
    def planned(self) -> int:
        """What is to be kept free for it: with headroom, or what its engine takes."""
        return max(with_headroom(self.total), self.reserved)

    def __add__(self, other: Parts) -> Parts:
        return Parts(
            dict(Counter(self.weights) + Counter(other.weights)),
            self.kv_cache + other.kv_cache,
            self.activations + other.activations,
            self.runtime + other.runtime,
            self.reserved + other.reserved,
        )


def with_headroom(size: int) -> int:
    """What is planned for a size: 15 % more, for batches, buffers and what allocators keep."""
    return ceil(size * 115 / 100)


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What is known of a version of a model without loading it.

    `weights` are those of one copy; `attention` is that of a language model. `stamp` tells its
    files and instances from all others; what was measured is kept by it.
    """

    config: ModelConfig
    version: int = 1
    weights: Weights = field(default_factory=dict)
    attention: Attention | None = None
    settings: EngineSettings = field(default_factory=EngineSettings)
    notes: tuple[str, ...] = ()
    stamp: str = ""

    @classmethod
    def read(cls, config: ModelConfig, version: int, version_path: Path) -> ModelFacts:
        """Read the headers of a version's files. Raises `ModelLoadError` for damaged ones."""
        if config.is_ensemble:
            return cls(config, version, notes=("an ensemble takes what its models take",))
        language = bool(Engine.of(config.backend).dtype)
        values = _values(version_path) if language else {}
        model, note = _model_path(config, version_path, values)
        if model is None:
            return cls(config, version, settings=_settings(values, version_path), notes=(note,))
        with SWITCH_INTERVAL.short():  # a header may be long, and the event loop runs beside it
            weights = read_weights(model)
            attention = read_attention(model) if language else None
        notes = list(weights.notes)
        if not weights.sizes and model.is_dir() and config.backend not in _WITHOUT_WEIGHTS:
            notes.append(f"no file with weights was found in '{model}'")
        settings = _settings(values, version_path)
        return cls(config, version, weights.sizes, attention, settings, tuple(notes))

    @property
    def name(self) -> str:
        """The model's name."""
        return self.config.name

    @property
    def instances(self) -> int:
        """The largest number of instances of its groups, as they are written; 0 where none is."""
        return max((group.count for group in self.config.instance_group), default=0)

    def with_one_instance(self) -> ModelFacts:
        """The model with one instance for each of its groups."""
        groups = tuple(replace(group, count=1) for group in self.config.instance_group)
        return replace(self, config=replace(self.config, instance_group=groups))


_WITHOUT_WEIGHTS = frozenset(("identity", "repeat", "square", "python"))


def _values(version_path: Path) -> Mapping[str, Any]:
    path = version_path / _SETTINGS
    return read_json(path) if path.is_file() else {}


def _settings(values: Mapping[str, Any], version_path: Path) -> EngineSettings:
    try:
        return EngineSettings.of(values)
    except ValueError as error:
        raise ModelLoadError(f"'{version_path / _SETTINGS}': {error}") from error


def _model_path(
    config: ModelConfig, version_path: Path, values: Mapping[str, Any]
) -> tuple[Path | None, str]:
    """The file or folder of the weights, and what is to be said about it."""
    named = values.get("model")
    if isinstance(named, str) and named:
        path = version_path / named
        if path.exists():
            return path, ""
        return None, f"'{named}' is not on this machine: fetch it, and name its folder as 'model'"
    file = config.default_model_filename
    path = version_path / file
    if file and path.exists() and path.suffix != ".py":
        return path, ""
    return version_path, ""


@dataclass(frozen=True, slots=True)
class Place:
    """Where models are put: on GPUs, by their numbers, of so many usable bytes each; or the host.

    Of a card that is not known, `memory` is 0.
    """

    gpus: tuple[int, ...] = ()
    memory: int = 0


@dataclass(frozen=True, slots=True)
class ModelEstimate:
    """What one version of a model takes, by device: `host`, `gpu0` and so on."""

    facts: ModelFacts
    instances: int = 0
    parts: Mapping[str, Parts] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def devices(self) -> tuple[str, ...]:
        """The GPUs that it runs on, or the host."""
        gpus = tuple(device for device in self.parts if device != HOST)
        return gpus or tuple(self.parts)

    @property
    def planned(self) -> int:
        """What is to be kept free for it on all devices that it runs on."""
        return sum(self.parts[device].planned for device in self.devices)


def estimate(facts: ModelFacts, place: Place) -> ModelEstimate:
    """What a model takes at this place. Pure: what was read is in `facts`."""
    if facts.config.is_ensemble:
        return ModelEstimate(facts, notes=facts.notes)
    engine = Engine.of(facts.config.backend)
    config = normalized(facts.config, () if engine.device == "cpu" else place.gpus)
    facts = replace(facts, config=config)
    parts, instances, notes = dict[str, Parts](), 0, list(facts.notes)
    if gpus_elsewhere(config, place):
        notes.append(_ELSEWHERE)
    for device, count, share in _spread(facts, engine, place):
        instances += count if share == 1 or device in (HOST, f"gpu{place.gpus[0]}") else 0
        for where, taken in _taken(facts, engine, place, device, count, share, notes):
            parts[where] = parts.get(where, Parts()) + taken
    return ModelEstimate(facts, instances, parts, tuple(dict.fromkeys(notes)))


def gpus_elsewhere(config: ModelConfig, place: Place) -> bool:
    """Whether a complete configuration has instances on GPUs that are not at this place."""
    groups = [group for group in config.instance_group if group.kind is InstanceKind.KIND_GPU]
    return any(not group.gpus or set(group.gpus) - set(place.gpus) for group in groups)


def _spread(facts: ModelFacts, engine: Engine, place: Place) -> Iterator[tuple[str, int, int]]:
    """Each device with its number of instances, and over how many devices each is split."""
    counts = Counter[tuple[str, int]]()
    parallel = min(facts.settings.parallel, max(1, len(place.gpus)))
    for group in facts.config.instance_group:
        if group.kind is InstanceKind.KIND_GPU:
            for gpu in group.gpus:
                counts[f"gpu{gpu}", 1] += group.count
        elif group.kind is InstanceKind.KIND_MODEL and place.gpus and engine.device != "cpu":
            for gpu in place.gpus[:parallel]:
                counts[f"gpu{gpu}", parallel] += group.count
        else:
            counts[HOST, 1] += group.count
    for (device, share), count in counts.items():
        yield device, count, share


def _taken(
    facts: ModelFacts,
    engine: Engine,
    place: Place,
    device: str,
    count: int,
    share: int,
    notes: list[str],
) -> Iterator[tuple[str, Parts]]:
    """What instances on a device take there, and of the host."""
    in_process = (facts.config.parameter("penstock.host") or engine.host) == "process"
    shared = engine.shared and device == HOST and not in_process and _shares(facts.config)
    copies = 1 if shared else count
    weights = engine.loaded(facts.weights, device)
    memory = place.memory if device != HOST else 0
    cache, reserved = _cache(facts, engine, device, memory, notes)
    text = int(_table()["text"] * _MIB) if facts.config.parameter(_TOKENIZER) is not None else 0
    processes = count if in_process else 1
    on_host = count * (engine.instance + (_process(engine) if in_process else 0))
    on_host += processes * text
    yield (
        device,
        Parts(
            {dtype: size * copies // share for dtype, size in weights.items()},
            cache * count // min(share, facts.attention.heads if facts.attention else 1),
            _activations(facts, engine) * count // share,
            on_host if device == HOST else count * engine.context * in_process,
            reserved * count,
        ),
    )
    if device != HOST:
        yield HOST, Parts(runtime=on_host)


def _process(engine: Engine) -> int:
    """What a process of the engine takes; one for threads brings no Python of its own."""
    return engine.process + (Engine.of("python").process if engine.host == "thread" else 0)


def _shares(config: ModelConfig) -> bool:
    return (config.parameter(_SHARE) or "").lower() not in ("0", "false", "off")


def _cache(
    facts: ModelFacts, engine: Engine, device: str, memory: int, notes: list[str]
) -> tuple[int, int]:
    """Bytes of the cache that an instance is to have, and what its engine takes altogether."""
    attention, settings = facts.attention, facts.settings
    dtype = settings.dtype or engine.dtype
    scales = engine.device == "cpu"
    fraction = settings.fraction or engine.fraction
    reserved = int(memory * fraction) if fraction else 0
    if settings.bytes:
        return settings.bytes, 0
    if attention is None:
        if engine.dtype:
            counted = "what its engine takes of the card" if reserved else "none"
            notes.append(f"no config.json says how large its KV cache is: {counted} is counted")
        return 0, reserved
    tokens = settings.tokens or engine.tokens
    if tokens:
        tokens = max(tokens, settings.length)
        return attention.cache(tokens, 1, dtype, scales=scales), 0
    if device == HOST and engine.cache:
        return engine.cache, 0
    length = settings.length or attention.context
    if not settings.sequences:
        notes.append(
            f"room for one sequence of {length} tokens is counted: max_num_seqs in model.json, or"
            " --concurrency, says how many there are to be"
        )
    return attention.cache(length, settings.sequences or 1, dtype, scales=scales), reserved


def _activations(facts: ModelFacts, engine: Engine) -> int:
    """Buffers of an instance while it computes its largest batch: a rule of thumb."""
    attention = facts.attention
    if attention is not None:
        tokens = facts.settings.batched or _BATCHED
        widths = 4 * attention.hidden + 2 * attention.intermediate
        logits = (facts.settings.sequences or 1) * attention.vocabulary * 4
        width = _WIDE if engine.device == "cpu" else 2
        return tokens * widths * width + logits
    config = facts.config
    tensors = [(one.data_type, one.dims) for one in config.input]
    tensors += [(one.data_type, one.dims) for one in config.output]
    row = sum(
        (dtype.itemsize or 1 if dtype is not None else 1)
        * prod(size if size > 0 else _UNKNOWN_DIMENSION for size in dims)
        for dtype, dims in tensors
    )
    return row * max(1, config.max_batch_size) * _BUFFERS
