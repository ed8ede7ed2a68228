"""Platforms without OpenVINO's paged attention, and the reason given."""

from __future__ import annotations

import pytest

from penstock_backends.openvino_genai.platform import check, unsupported_reason

NONE: frozenset[str] = frozenset()


@pytest.mark.parametrize(
    ("system", "machine", "flags"),
    [
        ("Linux", "x86_64", NONE),
        ("Windows", "amd64", NONE),
        ("Linux", "aarch64", frozenset({"asimd", "sve"})),
    ],
)
def test_supported(system: str, machine: str, flags: frozenset[str]) -> None:
    assert check(system, machine, flags) is None


@pytest.mark.parametrize(
    ("system", "machine", "why"),
    [
        ("Darwin", "arm64", "x86-64 CPU or an ARM CPU with SVE"),
        ("Linux", "aarch64", "Linux on aarch64 without SVE"),
        ("Linux", "riscv64", "does not run on riscv64"),
    ],
)
def test_unsupported(system: str, machine: str, why: str) -> None:
    assert why in (check(system, machine, frozenset({"asimd"})) or "")


def test_this_machine_has_an_answer() -> None:
    assert unsupported_reason() in (None, unsupported_reason())
