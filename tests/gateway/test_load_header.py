"""Load reports in headers of generate's replies."""

from __future__ import annotations

import httpx
import pytest

from gateway.serving import FakeServer, connected
from penstock.models.serving.answers import Gauge
from penstock.server.load_meter import LoadMeter

pytestmark = pytest.mark.contract("HG-13", "HG-14")

_HEADER = "endpoint-load-metrics"


async def _ask(endpoint: str, form: str | None, *gauges: Gauge) -> httpx.Response:
    server = FakeServer()
    now = iter(range(10))
    server.load_meter = LoadMeter(tuple, lambda: gauges, lambda: float(next(now)))
    headers = {} if form is None else {"endpoint-load-metrics-format": form}
    async with connected(server) as client:
        path = f"/v2/models/numbers/{endpoint}"
        return await client.post(path, json={"IN": 1.0}, headers=headers)


_USED = Gauge("penstock_llm_kv_cache_usage", "llm", "1", 0.5)


@pytest.mark.parametrize("endpoint", ["generate", "generate_stream"])
@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("json", 'JSON {"named_metrics":{"kv_cache_utilization":0.5}}'),
        ("text", "TEXT named_metrics.kv_cache_utilization=0.500000"),
    ],
)
async def test_a_reply_has_the_report_that_was_asked_for(
    endpoint: str, form: str, text: str
) -> None:
    answer = await _ask(endpoint, form, _USED)
    assert (answer.status_code, answer.headers[_HEADER]) == (200, text)
    assert '"OUT":1.0' in answer.text


@pytest.mark.parametrize("endpoint", ["generate", "generate_stream"])
@pytest.mark.parametrize(("form", "gauges"), [(None, [_USED]), ("nonsense", [_USED]), ("json", [])])
async def test_without_a_form_or_a_kv_cache_there_is_none(
    endpoint: str, form: str | None, gauges: list[Gauge]
) -> None:
    answer = await _ask(endpoint, form, *gauges)
    assert answer.status_code == 200
    assert _HEADER not in answer.headers
