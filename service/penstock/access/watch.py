"""`PolicyWatch`: puts a changed policy file in force, and keeps the old policy over a wrong one."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import NamedTuple

from penstock.access.gate import AccessGate
from penstock.access.key_set import NO_KEYS, FetchPlan, KeySet, fetch
from penstock.access.policy import AccessPolicy
from penstock.access.policy_file import read_policy
from penstock.access.token_settings import TokenSettings
from penstock.access.tokens import TokenVerifier
from penstock.core.access import AuditEvent, AuditSink
from penstock.core.errors import ConfigError
from penstock.system.file_state import FileState, check_file, file_state
from penstock.system.looking import looking

logger = logging.getLogger(__name__)

SECONDS = 1.0
"""Between two looks at the files, and at whether keys are to be fetched."""


class _Read(NamedTuple):
    """What the files said, and the states in which they were when they were read."""

    policy: AccessPolicy
    tokens: TokenVerifier | None
    states: tuple[FileState, FileState]


class PolicyWatch:
    """Looks at the files that paths name at the moment, through all symbolic links: Kubernetes
    changes a mounted Secret by one of these. What it saw last is read once, right or wrong.
    """

    def __init__(self, path: Path, audit: AuditSink | None = None) -> None:
        """A watch of a file, whose policy is in force; raises `ConfigError` for a wrong one.

        `audit` is told of changes, those of the keys of tokens included.
        """
        self._path = path
        self._audit = audit
        read = _read(path, None)
        self._seen = read.states
        self._plan = _plan(read.policy)
        self.gate = AccessGate(read.policy, read.tokens)

    async def look(self) -> None:
        """Take up the files if they have changed."""
        gate = self.gate
        now = await asyncio.to_thread(self._states)
        if now == self._seen:
            return
        self._seen = now
        try:
            read = await asyncio.to_thread(_read, self._path, gate)
        except ConfigError as error:
            self._failed(error, "the policy before it stays in force")
            return
        if read.policy.tokens != gate.policy.tokens:
            self._plan = _plan(read.policy)
        gate.policy, gate.tokens, self._seen = read
        logger.info("the access policy '%s' has changed, and is in force", self._path)
        self._tell("changed")

    async def renew_keys(self) -> None:
        """Fetch the keys of tokens, if it is time to; the last good ones stay where that fails."""
        plan, tokens, settings = self._plan, self.gate.tokens, self.gate.policy.tokens
        if plan is None or tokens is None or settings is None:
            return
        now = time.monotonic()
        if not plan.due(now, wanted=tokens.wants_keys):
            return
        keys = None
        try:
            keys = await fetch(settings.key_set)
        except ConfigError as error:
            self._failed(error, "the keys before them stay in use")
        plan.fetched(now, failed=keys is None)
        if keys is not None and plan is self._plan and self.gate.tokens is not None:
            self.gate.tokens.replace_keys(keys)

    def _failed(self, error: ConfigError, rest: str) -> None:
        self.gate.reload_failures += 1
        logger.error("%s; %s", error, rest)
        self._tell("refused", str(error))

    def _tell(self, result: str, detail: str = "") -> None:
        if self._audit is not None:
            event = AuditEvent(time.time(), "access-policy", result, detail=detail, cause="file")
            self._audit.add(event)

    def _states(self) -> tuple[FileState, FileState]:
        """The states of the policy file, and of that with keys of tokens, if there is one."""
        return file_state(self._path), _state_of_keys(self.gate.policy.tokens)

    def running(self, seconds: float = SECONDS) -> AbstractAsyncContextManager[None]:
        """Look at all of it at this interval while the context is open."""
        # In tasks of their own: to fetch keys may take long.
        return looking(seconds, "the access policy", self.look, self.renew_keys)


def _state_of_keys(tokens: TokenSettings | None) -> FileState:
    return None if tokens is None or tokens.is_fetched else file_state(Path(tokens.key_set))


def _read(path: Path, before: AccessGate | None) -> _Read:
    """The policy of a file, with what verifies its tokens; raises `ConfigError`.

    Keys that were fetched `before` from the same address are taken over. What is read at the start
    may be a pipe, which is read once.
    """
    state = file_state(path)
    policy = read_policy(path, again=before is not None)
    settings = policy.tokens
    of_keys = _state_of_keys(settings)
    if settings is None:
        return _Read(policy, None, (state, of_keys))
    if settings.is_fetched:
        keys = _kept_keys(settings, before)
    else:
        keys = _keys_in(Path(settings.key_set), again=before is not None)
    return _Read(policy, TokenVerifier(settings, policy, keys), (state, of_keys))


def _kept_keys(settings: TokenSettings, before: AccessGate | None) -> KeySet:
    if before is None or before.tokens is None or before.policy.tokens is None:
        return NO_KEYS
    same = before.policy.tokens.key_set == settings.key_set
    return before.tokens.keys if same else NO_KEYS


def _keys_in(path: Path, *, again: bool) -> KeySet:
    try:
        if again:
            check_file(path)
        return KeySet.parse(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"cannot read the key set '{path}': {error.strerror}") from error
    except ConfigError as error:
        raise ConfigError(f"'{path}': {error}") from error


def _plan(policy: AccessPolicy) -> FetchPlan | None:
    settings = policy.tokens
    return FetchPlan(settings) if settings is not None and settings.is_fetched else None
