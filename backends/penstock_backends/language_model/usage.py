"""`UsageReporter`: tells the server how many tokens a request has, as generation goes on."""

from __future__ import annotations

from typing import Final

from penstock.backend import InferenceRequest, ReportUsage

EVERY: Final = 16
"""Tokens of a request between two reports."""


class UsageReporter:
    """Reports the tokens of one request: with the first one, after each `EVERY`, at the end.

    `prompt` and `cached` tokens may become known later than here, but before the first report.
    """

    __slots__ = ("_report", "_reported", "_tokens", "cached", "prompt")

    def __init__(self, report: ReportUsage, prompt: int = 0) -> None:
        self._report = report
        self._reported = self._tokens = 0
        self.prompt = prompt
        self.cached = 0

    def add(self, tokens: int, *, finished: bool) -> None:
        """So many more tokens were generated; `finished` with the last of them."""
        self._tokens = made = self._tokens + tokens
        reported = self._reported
        if finished or made >= reported + EVERY or made > reported == 0:
            self._reported = made
            self._report(self.prompt, self.cached, made)


def usage_of(request: InferenceRequest, prompt: int = 0) -> UsageReporter | None:
    """The reporter of a request whose server wants reports; `prompt` tokens, where known."""
    report = request.report_usage
    return None if report is None else UsageReporter(report, prompt)
