"""A file of Model Analyzer as command lines of `penstock tune`, one for each model."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.core.nearest_name import suggestion
from penstock_client.perf.parser import command_parser as perf_parser
from penstock_client.tune.analyzer.keys import (
    COMPOSING,
    CONSTRAINTS,
    GLOBAL,
    OBJECTIVES,
    OF_A_MODEL,
    OF_A_MODEL_WITHOUT_EFFECT,
    OPTIONS,
    REMOTE,
    SEARCH,
    WITHOUT_EFFECT,
)
from penstock_client.tune.analyzer.sweeps import dimensions
from penstock_client.tune.composition import part_setting
from penstock_client.tune.errors import TuneError

_MISSING = "--config-file needs the package PyYAML: pip install 'penstock-client[tune]'"
_SET_BY_US = (
    "concurrency-range",
    "batch-size",
    "model-name",
    "url",
    "request-rate-range",
    "m",
    "u",
)
_RANGE = {"start", "stop", "step"}
_HEAVIEST = 1e9  # weighting
_OF_OUR_SERVER = {"triton_server_flags": "--server-flag", "triton_server_environment": "--env"}


@dataclass(frozen=True, slots=True)
class Analysis:
    """The models of a file: words for us and for `penstock perf`; keys that mean nothing here.

    `together` they are measured at the same time, and count by their weights.
    """

    models: Mapping[str, tuple[list[str], list[str]]]
    everywhere: tuple[list[str], list[str]]
    without_effect: Sequence[str]
    together: bool = False
    weights: Mapping[str, float] = field(default_factory=dict)


def read_analysis(path: Path) -> Analysis:
    """Read a file; raises `TuneError` that names the key which is wrong."""
    section = _content(path)
    _check(path, "", section, (*GLOBAL, *WITHOUT_EFFECT))
    for name in (*SEARCH, "num_configs_per_model"):
        if not isinstance(section.get(name, 1), int):
            raise TuneError(f"{path}: {name} is not a whole number")
    _refuse_unmeasurable(path, section)
    reader = _Reader(path, is_remote=section.get("triton_launch_mode") == "remote")
    common = reader.common(section)
    named = _models(path, "profile_models", section.get("profile_models"))
    models = {name: reader.model(name, own, section, common) for name, own in named.items()}
    together = bool(section.get("run_config_profile_models_concurrently_enable"))
    weights = reader.weights(section, named) if together else {}
    if not together and any("weighting" in each for each in (section, *named.values())):
        reader.without_effect.append("weighting")
    ignored = [name for name in section if name in WITHOUT_EFFECT]
    return Analysis(models, common, [*ignored, *reader.without_effect], together, weights)


def _content(path: Path) -> dict[str, Any]:
    try:
        import yaml
    except ImportError as error:
        raise TuneError(_MISSING) from error
    try:
        found = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeError, yaml.YAMLError) as error:
        raise TuneError(f"{path}: {error}") from error
    if not isinstance(found, dict):
        raise TuneError(f"{path}: not a mapping of keys")
    return found


def _check(path: Path, below: str, section: Mapping[str, Any], known: Iterable[str]) -> None:
    """Raises `TuneError` for a key that Model Analyzer does not know either."""
    names = list(known)
    for name in section:
        if name not in names:
            hint = suggestion(str(name), names)
            raise TuneError(f"{path}: unknown key '{below}{name}'{hint}")


def _refuse_unmeasurable(path: Path, section: Mapping[str, Any]) -> None:
    """Raise `TuneError` for keys that would change what is measured: a warning is not enough."""
    if (mode := section.get("triton_launch_mode", "local")) not in ("local", "remote"):
        raise TuneError(
            f"{path}: triton_launch_mode '{mode}': penstock tune starts a server itself (local), or"
            " takes one that runs (remote)"
        )


def _models(path: Path, key: str, given: Any) -> dict[str, Mapping[str, Any]]:
    """Names of models, each with its section below a key."""
    found: dict[str, Mapping[str, Any]] = {}
    if isinstance(given, str):
        found = {name.strip(): {} for name in given.split(",") if name.strip()}
    elif isinstance(given, Mapping):
        found = {str(name): mapping(path, f"{key}.{name}", given, name) for name in given}
    elif isinstance(given, list):
        for each in given:
            found |= _models(path, key, each)
    if not found:
        raise TuneError(f"{path}: {key} names no model")
    return found


def mapping(path: Path, name: str, owner: Mapping[Any, Any], key: Any) -> Mapping[str, Any]:
    """A section with keys of its own, empty where it is left out; raises `TuneError`."""
    found = owner.get(key)
    if found is not None and not isinstance(found, Mapping):
        raise TuneError(f"{path}: {name} is not a mapping of keys")
    return found or {}


class _Reader:
    """Sections as words; collects what has no effect."""

    def __init__(self, path: Path, *, is_remote: bool) -> None:
        self._path = path
        self._is_remote = is_remote
        self.without_effect: list[str] = []
        self._perf = {
            text.lstrip("-") for action in perf_parser()._actions for text in action.option_strings
        }

    def common(self, section: Mapping[str, Any]) -> tuple[list[str], list[str]]:
        """Words for every model."""
        words = []
        if "model_repository" in section:
            words.append(f"--model-repository={section['model_repository']}")
        for name, option in OPTIONS.items():
            if name in section:
                words += [option, *_values(section[name])]
        if "latency_budget" in section:
            words.append(f"--max-p99={section['latency_budget']}ms")
        if "min_throughput" in section:
            words.append(f"--min-throughput={section['min_throughput']}")
        if "num_configs_per_model" in section:
            words.append(f"--top={section['num_configs_per_model']}")
        words += self._server(section)
        own, perf = self._shared(section, "")
        words += [*own, *self._composing(section), *_trials(section)]
        if "client_protocol" in section:
            perf = ["-i", str(section["client_protocol"]), *perf]
        return words, perf

    def model(
        self,
        name: str,
        own: Mapping[str, Any],
        section: Mapping[str, Any],
        common: tuple[list[str], list[str]],
    ) -> tuple[list[str], list[str]]:
        """Words for one model: its own stand behind those for all."""
        below = f"profile_models.{name}."
        _check(self._path, below, own, (*OF_A_MODEL, *OF_A_MODEL_WITHOUT_EFFECT))
        self.without_effect += [below + each for each in own if each in OF_A_MODEL_WITHOUT_EFFECT]
        parameters = self._section(own, "parameters", below)
        _check(self._path, f"{below}parameters.", parameters, list(OPTIONS)[2:])
        words, perf = self._shared(own, below)
        for key, value in parameters.items():
            words += [OPTIONS[key], *_values(value)]
        swept = self._section(own, "model_config_parameters", below)
        where = f"{self._path}: {below}model_config_parameters"
        for path, values in dimensions(swept, where):
            words.append(f"--field={path}={','.join(map(_json, values))}")
        words += _automatic(section, parameters, swept)
        if swept and "run_config_search_mode" not in section:
            words.append("--mode=brute")
        return [*common[0], *words], [*common[1], *perf]

    def _shared(self, section: Mapping[str, Any], below: str) -> tuple[list[str], list[str]]:
        """Words of keys that may stand on top and below a model alike."""
        words = [
            *self._constraints(self._section(section, "constraints", below), below),
            *self._objectives(section.get("objectives") or {}, below),
        ]
        for key, option in _OF_OUR_SERVER.items():
            given = self._section(section, key, below)
            if self._is_remote:
                self.without_effect += [f"{below}{key}"] if given else []
                continue
            words += [f"{option}={name}={_flag_value(value)}" for name, value in given.items()]
        perf: list[str] = []
        for key in ("perf_analyzer_flags", "genai_perf_flags"):
            perf += self._perf_words(self._section(section, key, below), f"{below}{key}.")
        return words, perf

    def weights(
        self, section: Mapping[str, Any], models: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, float]:
        """The weights of models that are measured at the same time."""
        usual = section.get("weighting", 1)
        found = {name: own.get("weighting", usual) for name, own in models.items()}
        for name, weight in found.items():
            if not isinstance(weight, int | float) or not 0 < weight <= _HEAVIEST:
                raise TuneError(f"{self._path}: weighting of {name} is not a number above 0")
        return {name: float(weight) for name, weight in found.items()}

    def _server(self, section: Mapping[str, Any]) -> list[str]:
        """The server to take, if one runs already."""
        if not self._is_remote:
            self.without_effect += [name for name in REMOTE if name in section]
            return []
        found = {"triton_grpc_endpoint": "localhost:8001", **section}
        return [f"{option}={found[name]}" for name, option in REMOTE.items() if name in found]

    def _composing(self, section: Mapping[str, Any]) -> Iterator[str]:
        """Models that others call, with their settings where some are named."""
        for key in (each for each in COMPOSING if each in section):
            for name, own in _models(self._path, key, section[key]).items():
                below = f"{key}.{name}."
                _check(self._path, below, own, ("model_config_parameters",))
                yield f"--composing={name}"
                swept = self._section(own, "model_config_parameters", below)
                where = f"{self._path}: {below}model_config_parameters"
                for path, values in dimensions(swept, where):
                    yield f"--field={part_setting(name, path)}={','.join(map(_json, values))}"

    def _section(self, owner: Mapping[str, Any], key: str, below: str) -> Mapping[str, Any]:
        return mapping(self._path, f"{below}{key}", owner, key)

    def _constraints(self, section: Mapping[str, Any], below: str) -> Iterator[str]:
        for metric in section:
            bounds = self._section(section, metric, f"{below}constraints.")
            for bound, value in bounds.items():
                if (metric, bound) not in CONSTRAINTS:
                    known = ", ".join(f"{one}.{other}" for one, other in CONSTRAINTS)
                    raise TuneError(
                        f"{self._path}: {below}constraints.{metric}.{bound} cannot be kept here;"
                        f" these can: {known}"
                    )
                option, unit = CONSTRAINTS[metric, bound]
                yield f"{option}={value}{unit}"

    def _objectives(self, section: Any, below: str) -> Iterator[str]:
        weights = section if isinstance(section, Mapping) else dict.fromkeys(_values(section), 1)
        for metric, weight in weights.items():
            if metric not in OBJECTIVES:
                raise TuneError(
                    f"{self._path}: {below}objectives: '{metric}' is not measured here; these are:"
                    f" {', '.join(OBJECTIVES)}"
                )
            yield f"--objective={OBJECTIVES[metric]}:{weight}"

    def _perf_words(self, section: Mapping[str, Any], below: str) -> Iterator[str]:
        for name, value in section.items():
            if name not in self._perf or name in _SET_BY_US:
                self.without_effect.append(f"{below}{name}")
            elif value is True:
                yield f"--{name}"
            elif value is not False:
                dashes = "-" if len(name) == 1 else "--"
                for each in value if isinstance(value, list) else [value]:
                    yield from (f"{dashes}{name}", str(each))


def _automatic(
    section: Mapping[str, Any], parameters: Mapping[str, Any], swept: Mapping[str, Any]
) -> Iterator[str]:
    """Options of settings and loads that are searched unasked, unless all are named."""
    manual = bool(section.get("run_config_search_disable"))
    bounds = {name: int(section.get(name, default)) for name, default in SEARCH.items()}
    asked = {name for name in SEARCH if name in section}
    if not swept and not manual and any("instance" in n or "model_batch" in n for n in asked):
        low, high = _bounds(bounds, "instance_count")
        yield from ("--instances", f"{low}-{high}", "--batch-sizes")
        yield from map(str, _powers(*_bounds(bounds, "model_batch_size")))
    if manual and not swept and not any(key in section for key in COMPOSING):
        yield "--variants=1"  # the model as it is
    loads = {"concurrency", "request_rate"}
    if loads & (parameters.keys() | section.keys()):
        return
    if section.get("request_rate_search_enable") or any("request_rate" in name for name in asked):
        yield from ("--rate", *map(str, _powers(*_bounds(bounds, "request_rate"))))
    elif manual:
        yield from ("--concurrency", "1")
    elif any("concurrency" in name for name in asked):
        low, high = _bounds(bounds, "concurrency")
        yield from ("--sweep", f"{low}-{high}")


def _bounds(bounds: Mapping[str, int], name: str) -> tuple[int, int]:
    return bounds[f"run_config_search_min_{name}"], bounds[f"run_config_search_max_{name}"]


def _powers(low: int, high: int) -> list[int]:
    """Powers of two from one number to another."""
    return [1 << power for power in range(31) if low <= 1 << power <= high]


def _trials(section: Mapping[str, Any]) -> Iterator[str]:
    if "optuna_min_trials" in section or "optuna_max_trials" in section:
        least, most = (
            section.get(f"optuna_{name}_trials", SEARCH[f"optuna_{name}_trials"])
            for name in ("min", "max")
        )
        yield f"--trials={least}-{most}"
    if "optuna_early_exit_threshold" in section:
        yield f"--patience={section['optuna_early_exit_threshold']}"


def _values(value: Any) -> list[str]:
    """Words of a number, a list, text with commas, or `{start, stop, step}`."""
    if isinstance(value, Mapping) and value.keys() <= _RANGE and "start" in value:
        return [f"{value['start']}:{value.get('stop', value['start'])}:{value.get('step', 1)}"]
    if isinstance(value, list):
        return [str(each) for each in value]
    return [part.strip() for part in str(value).split(",")]


def _json(value: Any) -> str:
    return json.dumps(value, default=str)  # YAML has dates, which no field does


def _flag_value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
