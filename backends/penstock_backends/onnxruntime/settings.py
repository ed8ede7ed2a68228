"""`SessionSettings`: session options from parameters and backend settings (B-01, B-05, C-21)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.backend import ConfigError, InstanceKind, ModelConfig, share_of_cores, sharers

# Threads that spin between two operators take cores from the event loop and from each other:
# measured on two busy cores, runs took twice as long with spinning.
_NO_SPINNING = {"session.intra_op.allow_spinning": "0", "session.inter_op.allow_spinning": "0"}
_FLAGS = {"0": False, "1": True, "false": False, "true": True, "off": False, "on": True}

SHARE = "share_session_between_instances"
CACHE = "penstock.optimized_model_cache"
PROFILE = "penstock.profile"


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """The options of a session. With 0 threads, ONNX Runtime chooses the number.

    Parameters that begin with `session.` or `memory.` go to the session or to each run as they are;
    threads spin only when `session.intra_op.allow_spinning` says so. `cache` is the folder of
    optimised models, `profile` that of profiles, if there are any.
    """

    intra_op_threads: int = 0
    inter_op_threads: int = 0
    shared_threads: bool = False
    parallel: bool = False
    memory_arena: bool = True
    memory_pattern: bool = True
    graph_level: int = 0
    session_entries: tuple[tuple[str, str], ...] = ()
    run_entries: tuple[tuple[str, str], ...] = ()
    operator_libraries: tuple[str, ...] = ()
    shared: bool = False
    cache: Path | None = None
    profile: Path | None = None

    @classmethod
    def from_config(
        cls,
        config: ModelConfig,
        settings: Mapping[str, str],
        host_policy: str = "cpu",
        kind: str = InstanceKind.KIND_CPU,
    ) -> SessionSettings:
        """Parse `config`; `settings` are the server's defaults for the backend.

        Instances of one host policy share its cores, and on CPUs a session. Raises `ConfigError`.
        """
        given = {**settings, **{n: p.string_value for n, p in config.parameters.items()}}
        graph = config.optimization.graph if config.optimization else None
        operations = config.model_operations
        pool = _flag(settings, "enable-global-threadpool", False)
        threads = settings if pool else given
        shared = _flag(given, SHARE, kind != InstanceKind.KIND_GPU)
        share = 0 if pool else share_of_cores(config, host_policy)
        count = _number(threads, "intra_op_thread_count", share)
        if shared and not pool:
            count = _together(count, sharers(config, host_policy))
        return cls(
            intra_op_threads=count,
            inter_op_threads=_number(threads, "inter_op_thread_count", 0),
            shared_threads=pool,
            parallel=_parallel(given),
            memory_arena=_flag(given, "enable_mem_arena", True),
            memory_pattern=_flag(given, "enable_mem_pattern", True),
            graph_level=graph.level if graph else 0,
            session_entries=_prefixed({**_NO_SPINNING, **given}, "session."),
            run_entries=_prefixed(given, "memory."),
            operator_libraries=operations.op_library_filename if operations else (),
            shared=shared,
            cache=_folder(given, CACHE),
            profile=_folder(given, PROFILE),
        )

    @property
    def what_is_optimised(self) -> Hashable:
        """The options that an optimised model depends on."""
        return (self.graph_level, self.session_entries, self.operator_libraries)


def _together(threads: int, instances: int) -> int:
    """Threads of a session that computes on as many as a session of each instance would.

    Each instance brings its own thread, which counts as one of the session's.
    """
    return (threads - 1) * instances + 1 if threads else 0


def _parallel(given: Mapping[str, str]) -> bool:
    text = given.get("execution_mode", "") or "0"
    if text not in ("0", "1"):
        raise ConfigError(
            "Invalid configuration value provided. Expected values for  execution_mode are 0 or 1 "
            f"but got {text} ."
        )
    return text == "1"


def _folder(given: Mapping[str, str], name: str) -> Path | None:
    text = given.get(name, "")
    if text and not Path(text).is_absolute():
        raise ConfigError(f"parameter '{name}' must be the absolute path of a folder, not '{text}'")
    return Path(text) if text else None


def _number(given: Mapping[str, str], name: str, default: int) -> int:
    text = given.get(name, "")
    if not text:
        return default
    if not text.isdecimal():
        raise ConfigError(f"parameter '{name}' must be a whole number, not '{text}'")
    return int(text)


def _flag(given: Mapping[str, str], name: str, default: bool) -> bool:
    text = given.get(name, "")
    if not text:
        return default
    if text.lower() not in _FLAGS:
        raise ConfigError(f"parameter '{name}' must be 0 or 1, not '{text}'")
    return _FLAGS[text.lower()]


def _prefixed(given: Mapping[str, str], prefix: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, text) for name, text in given.items() if name.startswith(prefix))
