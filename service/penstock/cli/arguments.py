"""Parses the command line, and a few environment variables, into `Settings`."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.cli.flags import FLAGS
from penstock.cli.flags.flag import Flag
from penstock.cli.flags.sources import SOURCES
from penstock.cli.getopt import Option, options
from penstock.cli.tracing import TraceOptions
from penstock.cli.unsupported import OF_OPENAI_FRONTEND
from penstock.cli.values import ValueRefused
from penstock.settings import ModelFile, Settings
from penstock.settings.fields import default_value
from penstock.settings.rules import SettingsError
from penstock.settings.secure import secure_defaults

if TYPE_CHECKING:
    from penstock.models.remote.remote_repositories import RemoteRepositories
    from penstock.models.sources.draft import Wishes

Part = TypeVar("Part")
Warn = Callable[[str], None]


class UsageError(Exception):
    """An unexpected argument, or an option with an invalid value."""


class HelpRequested(Exception):  # noqa: N818
    """`--help` was given, before any mistake."""


_TAKES_VALUE = {"help": False, **{flag.name: flag.takes_value for flag in FLAGS.values()}}


def parse_arguments(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    warn: Warn,
    takes_files: bool = False,
) -> Settings:
    """The settings that `arguments` ask for; positional arguments are model files, if accepted.

    Raises `HelpRequested`; `OptionError` for an unknown option; `UsageError` for an invalid value;
    `SettingsError` for values that contradict each other.
    """
    reading = _SettingsBuilder(warn, takes_files)
    for option in _from_environment(environment):
        reading.add(option)
    for option in options(arguments, _TAKES_VALUE, OF_OPENAI_FRONTEND):
        reading.add(option)
    reading.complete(environment)
    return _settings(reading.fields)


def _from_environment(environment: Mapping[str, str]) -> Iterator[Option]:
    """Options from Vertex AI's environment variables; the command line overrides them."""
    if environment.get("AIP_MODE") == "PREDICTION":
        yield Option("allow-vertex-ai", "true")
        yield Option("allow-http", "false")
        yield Option("allow-grpc", "false")
    if environment.get("AIP_HTTP_PORT"):
        yield Option("vertex-ai-port", environment["AIP_HTTP_PORT"])


class _SettingsBuilder:
    """Collects the values of options by the path of their field in `Settings`."""

    def __init__(self, warn: Warn, takes_files: bool) -> None:
        self.fields: dict[str, Any] = {}
        self._takes_files = takes_files
        self._warn = warn
        self._given: set[str] = set()
        self._tracing = TraceOptions(warn)
        self._strict_model_config = False
        self._sources: list[str] = []
        self._wishes: dict[str, Any] = {}
        self._remote: RemoteRepositories | None = None

    def add(self, option: Option) -> None:
        if not option.name:
            if not self._takes_files:
                raise UsageError(f"Unexpected argument: {option.value}")
            self._sources.append(option.value)
            return
        if option.name == "help":
            raise HelpRequested
        flag = FLAGS[option.name]
        self._given.add(flag.name)
        if flag.warning:
            self._warn(flag.warning.format(value=option.value))
        try:
            self._set(flag, flag.parse(option.value))
        except ValueRefused as refused:
            raise _bad_option(f"--{refused.option or flag.name}", refused) from None

    def complete(self, environment: Mapping[str, str]) -> None:
        """Set the fields that depend on several options, or on the environment."""
        self._complete_trace(environment)
        self._complete_model_config()
        if {"response-cache-byte-size", "cache-config"} <= self._given:
            raise SettingsError(
                "Error: Incompatible flags --response-cache-byte-size and --cache-config both "
                "provided. Please provide one or the other."
            )
        for endpoint in ("grpc", "http"):
            if self.fields.get(f"{endpoint}.tls.mutual"):
                self.fields[f"{endpoint}.tls.enabled"] = True
        if "secure" in self.fields:
            for field, value in secure_defaults(self.fields):
                self.fields.setdefault(field, value)
        self.fields.setdefault("metrics.address", self._http_host())
        if environment.get("AIP_STORAGE_URI"):
            self.fields.setdefault("repository.paths", (environment["AIP_STORAGE_URI"],))
        self._apply_switches(environment)
        self._add_sources()

    def _add_sources(self) -> None:
        """Add the models and repositories that are given as arguments."""
        if self._wishes and not self._sources:
            raise UsageError(f"--{min(self._wishes)} is of models that are given as arguments")
        if not self._sources:
            return
        from penstock.models.sources.draft import SourceError, Wishes  # heavy
        from penstock.models.sources.recognise import named

        name = self._wishes.pop("name", "")
        wishes = Wishes(**self._wishes)
        if name and len(self._sources) > 1:
            raise UsageError("--name is of one model; of several each is given as NAME=MODEL")
        for source in self._sources:
            given, place = (name, source) if name else named(source)
            try:
                file = self._model_file(place, wishes, given)
            except SourceError as error:
                raise UsageError(str(error)) from None
            self._add_source(place, file)

    def _model_file(self, place: str, wishes: Wishes, name: str) -> ModelFile | None:
        """The model of a source; `None` for a repository. Raises `SourceError`."""
        from penstock.models.sources.bucket_file import bucket_file
        from penstock.models.sources.draft import SourceError
        from penstock.models.sources.recognise import model_of

        fetched = None if "://" not in place else bucket_file(place, self._opened())
        try:
            if fetched is None:
                draft = model_of(place, wishes, name)
            else:
                draft = model_of(fetched.source, wishes, name or fetched.name)
            return None if draft is None else draft.model_file(wishes)
        except SourceError as error:
            raise error if fetched is None else SourceError(fetched.told(str(error))) from error

    def _opened(self) -> RemoteRepositories:
        """What fetches objects that are served alone: they are kept until the process ends."""
        from penstock.models.remote.remote_repositories import RemoteRepositories

        if self._remote is None:
            folder = self.fields.get("repository.cache_dir", "")
            limit = self.fields.get("repository.cache_size", 0)
            self._remote = RemoteRepositories(folder, limit, os.environ)
            atexit.register(self._remote.close)
        return self._remote

    def _add_source(self, source: str, file: ModelFile | None) -> None:
        if file is None:
            paths: tuple[str, ...] = self.fields.get("repository.paths", ())
            self.fields["repository.paths"] = (*paths, source)
            return
        files: tuple[ModelFile, ...] = self.fields.get("repository.files", ())
        if file.name in (other.name for other in files):
            raise UsageError(f"two models are called '{file.name}': name one, as NAME={source}")
        self.fields["repository.files"] = (*files, file)

    def _apply_switches(self, environment: Mapping[str, str]) -> None:
        if environment.get("TRITON_SERVER_ESCAPE_LOG_MESSAGES") == "0":
            self.fields["logging.escape"] = False
        if "TRITON_SERVER_CPU_ONLY" in environment:
            self.fields["devices.cpu_only"] = True

    def _http_host(self) -> str:
        """The address of HTTP, or this machine alone where that is a file."""
        address: str = self.fields.get("http.address", default_value("http.address"))
        return "127.0.0.1" if address.startswith("unix:") else address

    def _set(self, flag: Flag, value: Any) -> None:
        if flag.field:
            before = self.fields.get(flag.field, default_value(flag.field))
            self.fields[flag.field] = flag.gather(before, value)
        elif flag.name == "trace-config":
            self._tracing.add(value)
        elif flag.name == "strict-model-config":
            self._strict_model_config = value
        elif flag in SOURCES.flags:
            self._wishes[flag.name] = value
        else:
            self._tracing.add_deprecated(flag.name, value)

    def _complete_trace(self, environment: Mapping[str, str]) -> None:
        try:
            self.fields |= self._tracing.fields(environment)
        except ValueRefused as refused:
            raise _bad_option(refused.option, refused) from None

    def _complete_model_config(self) -> None:
        disabled = "disable-auto-complete-config" in self._given
        if disabled and "strict-model-config" in self._given and not self._strict_model_config:
            self._warn(
                "Warning: Overriding deprecated '--strict-model-config' from False to True in "
                "favor of '--disable-auto-complete-config'!"
            )
        if disabled or self._strict_model_config:
            self.fields["repository.auto_complete_config"] = False


def _bad_option(name: str, refused: ValueRefused) -> UsageError:
    return UsageError(f'Bad option: "{name}".\n{refused}')


def _settings(values: Mapping[str, Any]) -> Settings:
    """`Settings` with the given fields, by path, in place of the defaults."""
    tree: dict[str, Any] = {}
    for path, value in values.items():
        *sections, name = path.split(".")
        branch = tree
        for section in sections:
            branch = branch.setdefault(section, {})
        branch[name] = value
    return Settings(**{name: _changed(default_value(name), value) for name, value in tree.items()})


def _changed(part: Part, branch: Any) -> Part:
    if not is_dataclass(part) or isinstance(part, type) or is_dataclass(branch):
        return branch  # type: ignore[no-any-return]
    return replace(part, **{n: _changed(getattr(part, n), v) for n, v in branch.items()})
