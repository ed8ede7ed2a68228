"""The logging handler of a model process: records are sent to the server's log."""

from __future__ import annotations

import asyncio
import logging

from penstock.core.log.log_fields import fields_of
from penstock.hosting.link.link import Link
from penstock.hosting.link.messages import LONGEST_TEXT, Kind


class LinkHandler(logging.Handler):
    """Sends log records to the server, from any thread."""

    def __init__(self, link: Link) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(message)s"))  # the server adds the rest
        self._link = link
        self._loop = asyncio.get_running_loop()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record)
            place = record.pathname, record.lineno
            header = record.levelno, record.name, *place, text[:LONGEST_TEXT], fields_of(record)
            self._loop.call_soon_threadsafe(self._link.send, Kind.LOG, header)
        except RuntimeError:  # the loop is closed: the process is ending
            return
