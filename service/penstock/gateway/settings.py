"""The endpoints of trace and log settings (contract H-11, H-12)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.core.errors import UnavailableError, shortened
from penstock.gateway.connections.http_call import HttpCall
from penstock.gateway.json.fields import ABSENT, as_bool, as_list, as_string, as_unsigned, member
from penstock.gateway.json_bodies import JsonBodies
from penstock.gateway.replies import Reply, json_reply
from penstock.gateway.router import Target
from penstock.server.control_policy import ControlPolicy
from penstock.server.faces import Control
from penstock.server.log_control import FORMATS, LogValues
from penstock.tracing.settings import Texts

_TRACE = ("trace_file", "trace_level", "trace_rate", "trace_count", "log_frequency")

_LOG: dict[str, Callable[[Any], bool | int | str]] = {
    "log_file": lambda _: "",  # any value is refused
    "log_info": as_bool,
    "log_warning": as_bool,
    "log_error": as_bool,
    "log_verbose_level": as_unsigned,
    "log_format": lambda value: _log_format(as_string(value)),
}


class SettingsEndpoints:
    """Handlers of `/v2/trace/setting`, the same of a model, and `/v2/logging`."""

    def __init__(self, server: Control, bodies: JsonBodies, policy: ControlPolicy) -> None:
        self._server = server
        self._bodies = bodies
        self._policy = policy

    async def trace(self, call: HttpCall, target: Target) -> Reply:
        if call.method == "POST":
            self._policy.check_trace()
        settings = await self._server.trace_settings(target.model)
        if call.method == "POST":
            changes = await self._bodies.read(call, _trace_changes)
            settings = await self._server.trace_settings(target.model, changes)
        return json_reply({name: _trace_value(name, texts) for name, texts in settings.items()})

    async def log(self, call: HttpCall, _: Target) -> Reply:
        changes: LogValues = {}
        if call.method == "POST":
            self._policy.check_log()
            changes = await self._bodies.read(call, _log_changes)
        return json_reply(dict(await self._server.log_settings(changes)))


def _trace_value(name: str, texts: Sequence[str]) -> Any:
    """Levels are a list; of others, only resource attributes may be several."""
    return list(texts) if name == "trace_level" or len(texts) > 1 else texts[0]


def _trace_changes(json: Any) -> Texts:
    """The new values by setting; an empty list clears a setting."""
    given = {name: member(json, name) for name in _TRACE}
    return {name: _texts(name, value) for name, value in given.items() if value is not ABSENT}


def _texts(name: str, value: Any) -> list[str]:
    if value is None or name == "trace_file":  # any value is refused later
        return []
    if name == "trace_level":
        return [as_string(level) for level in as_list(value)]
    return [as_string(value)]


def _log_format(text: str) -> str:
    """A format of the log; the error is that of Triton's HTTP endpoint, not of its gRPC one."""
    if text not in FORMATS:
        raise UnavailableError(f"invalid argument for --log_format, got: {shortened(text)}")
    return text


def _log_changes(json: Any) -> LogValues:
    """The new values by setting; `null` changes nothing."""
    given = {name: member(json, name) for name in _LOG}
    return {
        name: _LOG[name](value)
        for name, value in given.items()
        if value is not ABSENT and (value is not None or name == "log_file")
    }
