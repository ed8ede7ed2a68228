"""Options of tracing: `--trace-config`, its deprecated forms, and OpenTelemetry's environment.

Texts are those of `tritonserver`. As there, what is set for a mode that is not in use counts for
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from penstock.cli.compound import named_setting
from penstock.cli.values import Parser, ValueRefused, boolean, decimal, integer, interval, text
from penstock.core.nearest_name import suggestion
from penstock.settings.tracing import PROTOCOLS, SAMPLERS

TraceOption = tuple[str, str, Any]
"""Mode (empty for settings of both modes), key and value."""

_FORMAT = "--trace-config option format is '<trace mode>,<setting>=<value>'"
_FROM_ONE = range(1, 2**31)


def trace_level(value: str) -> frozenset[str]:
    """The levels that one text stands for; those of several add up, so that OFF adds none."""
    level = value.lower()
    if level not in ("off", "timestamps", "tensors", "min", "max"):
        raise ValueRefused(f"invalid value for trace level option: {level}")
    name = {"min": "timestamps", "max": "timestamps"}.get(level, level)
    return frozenset() if name == "off" else frozenset({name.upper()})


def _mode(value: str) -> str:
    if value.lower() not in ("triton", "opentelemetry"):
        raise ValueRefused(
            f"invalid value for trace mode option: {value}. "
            'Available options are "triton" and "opentelemetry"'
        )
    return value.lower()


def unsigned(value: str) -> int:
    """An unsigned 32-bit number; negative ones wrap around, as in Triton."""
    return integer(value) % (1 << 32)


def _size(value: str) -> int:
    return integer(value, _FROM_ONE)


def _resource(value: str) -> tuple[tuple[str, str], ...]:
    name, _, setting = value.partition("=")
    return ((name, setting),)


def _one_of(name: str, known: tuple[str, ...]) -> Parser:
    def parse(value: str) -> str:
        if value not in known:
            words = " and ".join(f'"{each}"' for each in known)
            raise ValueRefused(
                f"invalid value for trace {name} option: {value}. Available options are {words}"
            )
        return value

    return parse


def _ratio(value: str) -> float:
    number = decimal(value)
    if not 0 <= number <= 1:
        raise ValueRefused(f"a ratio is in range [0.0, 1.0]. Got {value}")
    return number


_PARSERS: dict[tuple[str, str], tuple[str, Parser]] = {
    ("", "rate"): ("rate", unsigned),
    ("", "level"): ("levels", trace_level),
    ("", "count"): ("count", integer),
    ("", "mode"): ("mode", _mode),
    ("triton", "file"): ("file", text),
    ("triton", "log-frequency"): ("log_frequency", unsigned),
    ("opentelemetry", "url"): ("opentelemetry.url", text),
    ("opentelemetry", "resource"): ("opentelemetry.resource", _resource),
    ("opentelemetry", "bsp_max_queue_size"): ("opentelemetry.bsp_max_queue_size", _size),
    ("opentelemetry", "bsp_schedule_delay"): ("opentelemetry.bsp_schedule_delay", _size),
    ("opentelemetry", "bsp_max_export_batch_size"): (
        "opentelemetry.bsp_max_export_batch_size",
        _size,
    ),
    ("opentelemetry", "protocol"): ("opentelemetry.protocol", _one_of("protocol", PROTOCOLS)),
    ("opentelemetry", "sampler"): ("opentelemetry.sampler", _one_of("sampler", SAMPLERS)),
    ("opentelemetry", "ratio"): ("opentelemetry.ratio", _ratio),
    ("opentelemetry", "slow_threshold_ms"): ("opentelemetry.slow_threshold_ms", interval),
    ("opentelemetry", "always_on_error"): ("opentelemetry.always_on_error", boolean),
}
"""By mode and key: the field below `trace`, and the parser of its values."""

_ADDED_UP = ("levels", "opentelemetry.resource")
"""Fields to which each further option adds."""

_DEPRECATED = {
    "trace-rate": ("rate", "rate value"),
    "trace-level": ("levels", "level"),
    "trace-count": ("count", "count"),
    "trace-file": ("file", "file"),
    "trace-log-frequency": ("log_frequency", "log-frequency"),
}

_CHOOSE_MODE = ("mode", "file", "log_frequency")
"""Fields that leave no choice of the mode to the environment."""

_SWITCHED_ON = {
    "mode": "opentelemetry",
    "levels": frozenset({"TIMESTAMPS"}),
    "rate": 1,
    "opentelemetry.sampler": "parentbased_always_on",
}
"""What the environment alone comes to: the defaults that OpenTelemetry specifies."""


def trace_config(value: str) -> TraceOption:
    """The parts of one `--trace-config`, with its value parsed."""
    if value.startswith(","):
        raise ValueRefused(
            "No trace mode specified. --trace-config option format is <trace mode>,"
            f"<setting>=<value> or <setting>=<value>. Got {value}"
        )
    mode, key, setting = named_setting(value, _FORMAT)
    mode = _mode(mode) if mode else ""
    option = f"trace-config {mode},{key}" if mode else f"trace-config {key}"
    if (mode, key) not in _PARSERS:
        known = [name for group, name in _PARSERS if group == mode]
        raise ValueRefused(f"unknown trace setting '{key}'{suggestion(key, known)}", option)
    try:
        return mode, key, _PARSERS[mode, key][1](setting)
    except ValueRefused as refused:
        raise ValueRefused(str(refused), option) from None


class TraceOptions:
    """Collects the options of tracing, in the order given; `fields` is what they come to."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._given: dict[str, Any] = {}
        self._deprecated: dict[str, Any] = {}

    def add(self, option: TraceOption) -> None:
        """Add a `--trace-config`."""
        mode, key, value = option
        _put(self._given, _PARSERS[mode, key][0], value)

    def add_deprecated(self, flag: str, value: Any) -> None:
        """Add an option of the older form."""
        if flag in _DEPRECATED:
            _put(self._deprecated, _DEPRECATED[flag][0], value)

    def fields(self, environment: Mapping[str, str]) -> dict[str, Any]:
        """The fields of the settings that are set, by path.

        Raises `ValueRefused` for variables of the environment that `tritonserver` refuses.
        """
        given = self._merged()
        variables = _Environment(environment, self._warn)
        fields: dict[str, Any] = {}
        if not any(name in given for name in _CHOOSE_MODE) and variables.export_traces():
            fields = dict(_SWITCHED_ON)
        fields |= given
        if fields.get("mode") == "opentelemetry":
            fields |= variables.fields()
            if "opentelemetry.ratio" in given:
                fields["opentelemetry.sampler"] = "parentbased_traceidratio"
            fields |= given
            if variables.disabled:
                fields["opentelemetry.sampler"] = "always_off"
        return {f"trace.{path}": value for path, value in fields.items()}

    def _merged(self) -> dict[str, Any]:
        """Both forms together: the deprecated one yields, but levels add up, as in Triton."""
        merged = dict(self._deprecated)
        for flag, (path, name) in _DEPRECATED.items():
            if path in merged and path in self._given:
                self._warn(
                    f"Warning: Overriding deprecated '--{flag}' in favor of provided {name} "
                    "in --trace-config!"
                )
        for path, value in self._given.items():
            if path == "levels":
                _put(merged, path, value)
            else:
                merged[path] = value
        return merged


def _put(fields: dict[str, Any], path: str, value: Any) -> None:
    if path == "levels":
        value = fields.get(path, frozenset()) | value
    elif path in _ADDED_UP:
        value = fields.get(path, ()) + value
    fields[path] = value


class _Environment:
    """OpenTelemetry's variables; as it specifies, an empty one counts as not set."""

    def __init__(self, variables: Mapping[str, str], warn: Callable[[str], None]) -> None:
        self._variables = variables
        self._warn = warn

    def export_traces(self) -> bool:
        """Whether the variables alone ask for traces to be exported."""
        if self.disabled:
            return False
        exporters = self._get("OTEL_TRACES_EXPORTER")
        if exporters:
            names = [name.strip() for name in exporters.split(",")]
            for name in names:
                if name not in ("otlp", "none"):
                    self._warn(
                        f"Warning: OTEL_TRACES_EXPORTER names '{name}', which is not an exporter "
                        "of this server. Use 'otlp'."
                    )
            return "otlp" in names
        return bool(
            self._get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
            or self._get("OTEL_EXPORTER_OTLP_ENDPOINT")
        )

    @property
    def disabled(self) -> bool:
        """Whether OpenTelemetry is switched off for the whole process."""
        return self._get("OTEL_SDK_DISABLED").lower() == "true"

    def fields(self) -> dict[str, Any]:
        """Fields of the OpenTelemetry mode."""
        return dict((*self._batching(), *self._protocol(), *self._sampler()))

    def _batching(self) -> Iterator[tuple[str, int]]:
        for key in ("bsp_max_queue_size", "bsp_schedule_delay", "bsp_max_export_batch_size"):
            name = f"OTEL_{key.upper()}"
            if value := self._get(name):
                yield f"opentelemetry.{key}", _parsed_variable(name, value)

    def _protocol(self) -> Iterator[tuple[str, str]]:
        for name in ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
            value = self._get(name)
            if not value:
                continue
            if value not in PROTOCOLS:
                self._warn(
                    f"Warning: {name} is '{value}', which this server does not speak. "
                    f"Using '{PROTOCOLS[0]}'."
                )
                value = PROTOCOLS[0]
            yield "opentelemetry.protocol", value
            return

    def _sampler(self) -> Iterator[tuple[str, str | float]]:
        sampler = self._get("OTEL_TRACES_SAMPLER").lower()
        if not sampler:
            return
        if sampler not in SAMPLERS:
            self._warn(
                f"Warning: OTEL_TRACES_SAMPLER is '{sampler}', which is not one of "
                f"{', '.join(SAMPLERS)}. It is ignored."
            )
            return
        yield "opentelemetry.sampler", sampler
        argument = self._get("OTEL_TRACES_SAMPLER_ARG")
        if argument and sampler.endswith("ratio"):
            try:
                yield "opentelemetry.ratio", _ratio(argument)
            except ValueRefused as refused:
                self._warn(f"Warning: OTEL_TRACES_SAMPLER_ARG is ignored: {refused}.")

    def _get(self, name: str) -> str:
        return self._variables.get(name, "").strip()


def _parsed_variable(name: str, value: str) -> int:
    try:
        return _size(value)
    except ValueRefused as refused:
        raise ValueRefused(str(refused), name) from None
