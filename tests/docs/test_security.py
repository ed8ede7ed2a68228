"""What the page about security says is off is off, and what it names is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.cli.arguments import parse_arguments
from penstock.settings import Settings

_PAGE = (Path(__file__).parents[2] / "docs" / "security.md").read_text("utf-8")
(_LIST,) = re.findall(r"^4\. Leave off:(.*?)All are off by default\.", _PAGE, re.M | re.S)
_OFF = re.findall(r"`(--[a-z-]+)`", _LIST)


def _settings(*flags: str) -> Settings:
    return parse_arguments(["--model-repository=models", "--tenants=some.toml", *flags], {}, print)


def test_the_page_lists_them() -> None:
    assert {"--allow-model-upload", "--allow-unsafe-models", "--allow-client-shm"} <= {*_OFF}


@pytest.mark.contract("SEC-01", "SEC-15")
@pytest.mark.parametrize(
    "flag",
    [each for each in _OFF if each != "--allow-media-urls"],  # where models may name hosts
)
def test_what_the_page_leaves_off_is_off_by_default(flag: str) -> None:
    assert _settings(f"{flag}=false") == _settings()
    assert _settings(f"{flag}=true") != _settings()


@pytest.mark.contract("SEC-12")
def test_nothing_is_traced_by_default_and_metrics_can_be_closed() -> None:
    assert _settings("--trace-config=level=OFF").trace == _settings().trace
    assert not _settings("--allow-metrics=false").metrics.enabled


@pytest.mark.contract("SEC-01")
@pytest.mark.parametrize(
    ("who", "may"),
    [
        ("authors of models", "no isolation between models"),
        ("everybody who reaches a port", "the calls that are not restricted"),
    ],
)
def test_the_page_says_who_is_trusted_with_what(who: str, may: str) -> None:
    rows = dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", _PAGE, re.MULTILINE))
    assert may in rows[who]


@pytest.mark.contract("SEC-01")
def test_the_page_says_what_a_proxy_is_for() -> None:
    not_defended = _PAGE.partition("## What is not defended")[2]
    assert "A proxy has one." in not_defended
