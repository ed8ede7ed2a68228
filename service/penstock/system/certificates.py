"""`ServerCertificates`: the TLS contexts of an endpoint, made anew when their files change."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import NamedTuple, Protocol

from penstock.core.access import AuditEvent, AuditSink
from penstock.system.file_state import FileState, check_file, file_state
from penstock.system.looking import looking
from penstock.system.tls import server_context, validity

logger = logging.getLogger(__name__)

SECONDS = 1.0
"""Between two looks at the files."""


class TlsFiles(Protocol):
    """Paths of PEM files, empty for none; `mutual` demands a certificate of clients, too."""

    @property
    def certificate(self) -> str: ...

    @property
    def key(self) -> str: ...

    @property
    def root_certificate(self) -> str: ...

    @property
    def mutual(self) -> bool: ...


class Pem(NamedTuple):
    """What the files hold that are in use; empty where there is none."""

    certificate: bytes
    private_key: bytes
    root_certificate: bytes


class _ChangingError(Exception):
    """The files were replaced while they were read."""


class ServerCertificates:
    """Contexts by protocol, all of the same files: a certificate, its key, and who signs clients'.

    A context that is in use is never touched: OpenSSL breaks one that is given a key that does not
    fit, and takes no authority away. A new one is made, checked and put in its place, for new
    connections; tickets of the old one are worth nothing to it. `failures` counts files that were
    wrong, and left those before them in use.
    """

    def __init__(
        self,
        name: str,
        tls: TlsFiles,
        audit: AuditSink | None = None,
        make: Callable[..., ssl.SSLContext] = server_context,
    ) -> None:
        """`name` is that of the endpoint, `audit` is told of changes, `make` makes contexts."""
        self._audit = audit
        self._make = make
        self.name = name
        self.changes = self.failures = 0
        self._paths = tls.certificate, tls.key, tls.root_certificate
        self._mutual = tls.mutual
        self._contexts: dict[str, ssl.SSLContext] = {}
        self._seen: tuple[FileState, ...] = ()
        self._doubted: tuple[FileState, ...] = ()
        self._pem = Pem(b"", b"", b"")

    def context(self, protocol: str) -> Callable[[], ssl.SSLContext]:
        """What tells the context that new connections of a protocol are to use.

        Raises `OSError` that names what is missing or wrong.
        """
        if protocol not in self._contexts:
            seen = self._states()
            self._contexts[protocol] = self._made(protocol)
            if not self._seen:
                self._seen, self._pem = seen, self._read()
                self._tell_dates()
        return lambda: self._contexts[protocol]

    @property
    def pem(self) -> Pem:
        """What is in use, for transports that have contexts of their own."""
        return self._pem

    @property
    def expires(self) -> float | None:
        """When the first certificate of the file ends, in seconds since the epoch."""
        dates = validity(self._pem.certificate)
        return None if dates is None else dates[1]

    async def look(self) -> None:
        """Take up the files if they have changed; wrong ones leave the old ones in use.

        They are called wrong at the second look that finds them so.
        """
        now = await asyncio.to_thread(self._states)
        if now == self._seen:
            return
        try:
            pem, contexts = await asyncio.to_thread(self._checked)
        except _ChangingError:
            return  # they are read again at the next look
        except (OSError, ValueError) as error:
            if now != self._doubted:  # one file after the other may be replaced: look once more
                self._doubted = now
                return
            self._seen = now
            self.failures += 1
            text = "the certificate of %s: %s; the one before it stays in use"
            logger.error(text, self.name, _reason(error))
            self._tell("refused", _reason(error))
            return
        self._seen = now
        if pem == self._pem:
            return
        self._pem, self._contexts = pem, contexts
        self.changes += 1
        logger.info("the certificate of %s has changed, and is in use", self.name)
        self._tell("changed")
        self._tell_dates()

    def running(self, seconds: float = SECONDS) -> AbstractAsyncContextManager[None]:
        """Look at this interval while the context is open."""
        return looking(seconds, f"the certificate of {self.name}", self.look)

    def _states(self) -> tuple[FileState, ...]:
        return tuple(file_state(Path(path)) if path else None for path in self._paths)

    def _read(self) -> Pem:
        return Pem(*(Path(path).read_bytes() if path else b"" for path in self._paths))

    def _made(self, protocol: str) -> ssl.SSLContext:
        return self._make(protocol, *self._paths, mutual=self._mutual)

    def _checked(self) -> tuple[Pem, dict[str, ssl.SSLContext]]:
        """The files' content with contexts of it; the files were these before and after."""
        for path in filter(None, self._paths):
            check_file(Path(path))
        before = self._read()
        try:
            contexts = {protocol: self._made(protocol) for protocol in self._contexts}
        finally:
            if self._read() != before:
                raise _ChangingError
        if before.certificate != self._pem.certificate:
            _check_dates(before.certificate)
        return before, contexts

    def _tell(self, result: str, detail: str = "") -> None:
        if self._audit is not None:
            told = AuditEvent(time.time(), "certificate", result, "", "", self.name, detail, "file")
            self._audit.add(told)

    def _tell_dates(self) -> None:
        """A line about a certificate that no client will take."""
        try:
            _check_dates(self._pem.certificate)
        except ValueError as error:
            logger.warning("the certificate of %s: %s", self.name, error)


def _check_dates(certificate: bytes) -> None:
    """Raises `ValueError` for a certificate that is not valid now, or holds none."""
    dates = validity(certificate)
    if dates is None:
        raise ValueError("its dates cannot be read")
    begins, ends = dates
    if ends <= time.time():
        raise ValueError(f"it expired at {_written(ends)}")
    if begins > time.time():
        raise ValueError(f"it is not valid before {_written(begins)}")


def _written(date: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(date))


def _reason(error: Exception) -> str:
    """What is wrong, without what is in the files."""
    if isinstance(error, ssl.SSLError):
        return (error.reason or "not readable").lower().replace("_", " ")
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error)
