"""A pytest plugin that escapes surrogates in captured output, which workers cannot send."""

from __future__ import annotations

from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    report.sections = [(title, _escaped(text)) for title, text in report.sections]
    return report


def _escaped(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()
