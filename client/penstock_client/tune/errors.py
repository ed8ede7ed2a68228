"""The end of `penstock tune` before there are results; statuses are those of `penstock perf`."""

from __future__ import annotations

from penstock_client.perf.errors import PerfError


class TuneError(PerfError):
    """Something that its user has to change, with the status that the command ends with."""


class VariantError(Exception):
    """A variant that cannot be measured: it does not load, or its server ended."""


class ServerGoneError(Exception):
    """The server of another owner does not answer any more: nothing further can be measured."""
