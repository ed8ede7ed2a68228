"""The metrics page as Prometheus' own `promtool` judges it."""

from __future__ import annotations

import asyncio
import subprocess

import pytest

from programs.places import find
from telemetry.whole_page import whole_page

_PROMTOOL = find("promtool")


@pytest.mark.needs("promtool", "" if _PROMTOOL else "there is no promtool: `make tools` says why")
@pytest.mark.contract("ME-36")
async def test_promtool_finds_fault_with_names_of_triton_and_vllm_only() -> None:
    text = (await whole_page().scrape()).body
    command = [str(_PROMTOOL), "check", "metrics"]
    done = await asyncio.to_thread(subprocess.run, command, input=text, capture_output=True)
    faults = done.stderr.decode().splitlines()
    others = ("nv_", "vllm:")  # what others named, and tools read by these names
    assert [fault for fault in faults if not fault.startswith(others)] == []
    assert any(fault.startswith("nv_inference_count counter metrics should") for fault in faults)
    assert done.returncode in (0, 3)  # 3: what it prints is advice
