"""`UsageReporter`: reports a request's tokens to the server, as generation goes on."""

from __future__ import annotations

from functools import partial
from typing import Final

from penstock.backend import InferenceRequest, ReportUsage

EVERY: Final = 16
"""Tokens of a request between two reports."""


class UsageReporter:
    """Reports the tokens of one request: with the first one, after each `EVERY`, and at the end,
    also where that comes early.

    `prompt` and `cached` tokens may become known later than here, but before the first report.
    `begun` says that the engine has begun with the prompt, where that is known before a token.
    """

    __slots__ = ("_report", "_reported", "_tokens", "_told", "begun", "cached", "prompt")

    def __init__(self, report: ReportUsage, prompt: int = 0) -> None:
        self._report = report
        self._reported = self._tokens = 0
        self.prompt = prompt
        self.cached = 0
        self.begun = self._told = False

    @property
    def tokens(self) -> int:
        """The generated tokens so far, reported or not."""
        return self._tokens

    def add(self, tokens: int, *, finished: bool) -> None:
        """Count generated tokens; `finished` with the last of them."""
        self._tokens = made = self._tokens + tokens
        reported = self._reported
        if finished or made >= reported + EVERY or made > reported == 0:
            self._reported = made
            self._told = True
            self._report(self.prompt, self.cached, made)

    def cut_off(self) -> None:
        """Report what has come since the last report: the client has left, or the engine failed."""
        if self._tokens > self._reported or (self.begun and not self._told):
            self.add(0, finished=True)


class UsageSum:
    """Reports the tokens of several prompts, which are one request to the server, as their sums."""

    def __init__(self, report: ReportUsage) -> None:
        self._report = report
        self._counts: list[tuple[int, int, int]] = []

    def part(self) -> ReportUsage:
        """The function by which one more of the prompts reports its own tokens."""
        self._counts.append((0, 0, 0))
        return partial(self._report_part, len(self._counts) - 1)

    def _report_part(self, place: int, prompt: int, cached: int, generated: int) -> None:
        self._counts[place] = (prompt, cached, generated)
        self._report(*(sum(column) for column in zip(*self._counts, strict=True)))


def usage_of(request: InferenceRequest, prompt: int = 0) -> UsageReporter | None:
    """The reporter of a request whose server wants reports; `prompt` tokens, where known."""
    report = request.scope.report_usage
    return None if report is None else UsageReporter(report, prompt)
