"""vLLM's names of the load of a language model, on the metrics page of a real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from harness.serving import Served, serving

_SAME = {
    "vllm:num_requests_waiting": "penstock_llm_waiting_requests",
    "vllm:num_requests_running": "penstock_llm_running_requests",
    "vllm:kv_cache_usage_perc": "penstock_llm_kv_cache_usage",
    "vllm:cache_config_info": "penstock_llm_cache_config_info",
}


@pytest.fixture
def named(demo: Path, tmp_path: Path) -> Iterator[Served]:
    """A server of the demo's language model, whose metrics have vLLM's names."""
    flags = ("--model-control-mode=explicit", "--load-model=tiny_llm")
    with serving(demo, tmp_path / "log", "--metrics-config=llm,vllm_names=true", *flags) as served:
        yield served


def _lines(server: Served) -> list[str]:
    with urlopen(server.metrics, timeout=60) as page:
        lines: list[str] = page.read().decode().splitlines()
    return lines


def test_gateways_read_the_load_of_another_engine_under_vllms_names(named: Served) -> None:
    values = dict(line.rsplit(" ", 1) for line in _lines(named) if not line.startswith("#"))
    theirs = {name: value for name, value in values.items() if name.startswith("vllm:")}
    assert {name.partition("{")[0] for name in theirs} == _SAME.keys()
    for name, value in theirs.items():
        family, _, labels = name.partition("{")
        assert values[f"{_SAME[family]}{{{labels}"] == value
    (cache,) = (name for name in theirs if name.startswith("vllm:cache_config_info"))
    assert 'block_size="' in cache
    assert 'num_gpu_blocks="' in cache
    assert 'model="tiny_llm",version="1"' in cache


def test_no_line_begins_with_vllm_unless_asked(server: Served) -> None:
    lines = _lines(server)
    assert any(line.startswith("penstock_llm_cache_config_info{") for line in lines)
    assert not any("vllm:" in line for line in lines)
