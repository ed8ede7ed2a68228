"""`TraceControl`: trace settings of all models and of single ones, changed while serving (X-13)."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from penstock.core.errors import InvalidRequestError, UnsupportedError
from penstock.settings import TraceSettings
from penstock.tracing.sampling import Sampled, Sampling

logger = logging.getLogger(__name__)

Texts = Mapping[str, Sequence[str]]

LEVELS = ("TIMESTAMPS", "TENSORS")
_OLD_LEVELS = {"MIN": "TIMESTAMPS", "MAX": "TIMESTAMPS"}
_TENSORS_REFUSED = (
    "trace level TENSORS can not be set through network protocol; the command line can"
    " (--trace-config=level=TENSORS), or allow it (--allow-trace-tensors=true)"
)
_INTEGER = re.compile(r"\s*([+-]?[0-9]+)")


def trace_texts(settings: TraceSettings) -> dict[str, list[str]]:
    """The settings as clients see them: lists of text by the name of the setting."""
    texts = {
        "trace_level": [level for level in LEVELS if level in settings.levels] or ["OFF"],
        "trace_rate": [str(settings.rate)],
        "trace_count": [str(settings.count)],
    }
    if settings.mode == "opentelemetry":
        return texts | {"trace_mode": ["opentelemetry"]} | _opentelemetry_texts(settings)
    return texts | {
        "log_frequency": [str(settings.log_frequency)],
        "trace_file": [settings.file],
        "trace_mode": ["triton"],
    }


def _opentelemetry_texts(settings: TraceSettings) -> dict[str, list[str]]:
    """Triton's settings of this mode; ours only where they are set."""
    mode = settings.opentelemetry
    texts: dict[str, list[str]] = {
        "url": [mode.url] if mode.url else [],
        "resource": ["=".join(filter(None, attribute)) for attribute in mode.resource],
        "bsp_max_export_batch_size": [str(mode.bsp_max_export_batch_size)],
        "bsp_schedule_delay": [str(mode.bsp_schedule_delay)],
        "bsp_max_queue_size": [str(mode.bsp_max_queue_size)],
        "protocol": [mode.protocol] if mode.protocol != "http/protobuf" else [],
        "sampler": [mode.sampler] if mode.sampler else [],
        "ratio": [f"{mode.ratio:g}"] if mode.sampler.endswith("ratio") else [],
        "slow_threshold_ms": [f"{mode.slow_threshold_ms:g}"] if mode.slow_threshold_ms else [],
        "always_on_error": ["true"] if mode.always_on_error else [],
    }
    return {name: values for name, values in texts.items() if values}


def _check(settings: TraceSettings) -> None:
    """Refuse settings that enable tracing but leave out what it needs (T-20)."""
    if not settings.levels:
        return
    if not settings.rate:
        reason = "sample rate must be non-zero"
    elif settings.mode == "triton" and not settings.file:
        reason = "trace file name is not given"
    elif not settings.count:
        reason = ""  # Triton names none
    else:
        return
    raise InvalidRequestError(f"Attempting to set invalid trace setting :{reason}")


class TraceControl:
    """The trace settings in force: those of the start, overridden by what clients changed since.

    A setting of one model overrides that of all models until it is cleared, also while the model is
    unloaded; the others follow those of all models. `active` says whether any request may be
    traced. The level TENSORS, which writes clients' data to the trace, can be set only if the
    start has it, or with `tensors`.
    """

    def __init__(self, start: TraceSettings | None = None, *, tensors: bool = False) -> None:
        self.start = start or TraceSettings()
        self._tensors = tensors or "TENSORS" in self.start.levels
        self._all = Sampling(self.start)
        self._own: dict[str, Sampling] = {}
        self._given: dict[str, dict[str, Any]] = {}
        self._on_replaced: list[Callable[[Sampling], None]] = []
        self.active = self._all.active
        self._tell_tensors(self.start)
        if self.start.levels and self.start.mode == "triton" and not self.start.file:
            logger.warning(
                "nothing is traced: the trace level is set, but no file. "
                "Use --trace-config triton,file=<path>"
            )

    def current(self, model: str = "") -> TraceSettings:
        """The settings of a model, or those of all models; the count is what is left of it."""
        return self._own.get(model, self._all).live

    def sample(
        self, model: str, propagated: bool | None = None, trace_id: int = 0
    ) -> Sampled | None:
        """Whether to record a request; see `Sampling.sample`."""
        sampling = self._own.get(model, self._all)
        sampled = sampling.sample(propagated, trace_id)
        if sampled is not None and not sampling.count:
            self._note_activity()
        return sampled

    def on_replaced(self, call: Callable[[Sampling], None]) -> None:
        """Call `call` with settings that are not in force any more."""
        self._on_replaced.append(call)

    def change(self, texts: Texts, model: str = "") -> None:
        """Change the settings that `texts` names, of one model or of all; an empty list clears one.

        Whether a change alters anything or not, counting begins again. Raises `InvalidRequestError`
        or `UnsupportedError`; then nothing has changed, except that models which cannot follow a
        change of all models keep what they had, as in Triton.
        """
        changes = _read(texts)
        if not self._tensors and "TENSORS" in (changes.get("levels") or ()):
            raise UnsupportedError(_TENSORS_REFUSED)
        self._update(model, changes)
        problems = [] if model else [*filter(None, map(self._follow, list(self._own)))]
        self._note_activity()
        if problems:
            raise problems[0]

    def _follow(self, model: str) -> InvalidRequestError | None:
        """Let a model's settings take over what it has no own value for."""
        try:
            self._update(model, {})
        except InvalidRequestError as problem:
            return problem
        return None

    def _update(self, model: str, changes: Mapping[str, Any]) -> None:
        given = {**self._given.get(model, {}), **changes}
        given = {name: value for name, value in given.items() if value is not None}
        before = self._own.get(model) if model else self._all
        if before is not None and "count" in given and "count" not in changes:
            given["count"] = before.count
        if model and not given:
            self._replace(model, None)
            return
        settings = replace(self._all.live if model else self.start, **given)
        _check(settings)
        self._tell_tensors(settings)
        self._given[model] = given
        self._replace(model, Sampling(settings))

    def _replace(self, model: str, sampling: Sampling | None) -> None:
        before = self._own.pop(model, None) if model else self._all
        if sampling is None:
            self._given.pop(model, None)
        elif model:
            self._own[model] = sampling
        else:
            self._all = sampling
        if before is not None:
            for call in self._on_replaced:
                call(before)

    def _note_activity(self) -> None:
        self.active = self._all.active or any(own.active for own in self._own.values())

    @staticmethod
    def _tell_tensors(settings: TraceSettings) -> None:
        if settings.mode == "opentelemetry" and "TENSORS" in settings.levels:
            logger.error("Tensor level tracing is not supported by the mode: opentelemetry")


def _read(texts: Texts) -> dict[str, Any]:
    """The fields of `TraceSettings` that `texts` changes; `None` for one to clear."""
    if "trace_file" in texts:
        raise UnsupportedError("trace file location can not be updated through network protocol")
    changes: dict[str, Any] = {}
    if "trace_level" in texts:
        changes |= _levels(texts["trace_level"])
    if "trace_rate" in texts:
        changes["rate"] = _unsigned("trace_rate", texts["trace_rate"])
    if "trace_count" in texts:
        changes["count"] = _count("trace_count", texts["trace_count"])
    if "log_frequency" in texts:
        changes["log_frequency"] = _unsigned("log_frequency", texts["log_frequency"])
    return changes


def _levels(values: Sequence[str]) -> dict[str, Any]:
    """The levels named; unknown ones are ignored."""
    if "OFF" in values and len(values) > 1:
        raise InvalidRequestError("Expect only one trace level 'OFF' is specified")
    if not values:
        return {"levels": None}
    known = frozenset(_OLD_LEVELS.get(value, value) for value in values) & frozenset(LEVELS)
    return {"levels": known} if known or "OFF" in values else {}


def _unsigned(name: str, values: Sequence[str]) -> int | None:
    """An unsigned 32-bit number; negative values wrap around, as in Triton."""
    number = _number(name, values, "0, 4294967295")
    return None if number is None else number % (1 << 32)


def _count(name: str, values: Sequence[str]) -> int | None:
    number = _number(name, values, "-1, 2147483647")
    if number is not None and number < -1:
        raise InvalidRequestError(
            f"Unable to parse '{name}'. Expecting value >= -1, got: {values[0]}"
        )
    return number


def _number(name: str, values: Sequence[str], bounds: str) -> int | None:
    """The integer at the start of the only value; `None` for no value."""
    if not values:
        return None
    if len(values) > 1:
        raise InvalidRequestError(f"expect only 1 value for '{name}'")
    found = _INTEGER.match(values[0])
    if found is None:
        raise InvalidRequestError(f"Unable to parse '{name}', got: {values[0]}")
    number = int(found[1]) if len(found[1]) < 20 else 1 << 64
    if not -(1 << 31) <= number < 1 << 31:
        raise InvalidRequestError(
            f"Unable to parse '{name}', value is out of range [ {bounds} ], got: {values[0]}"
        )
    return number
