"""Every option of metrics has the effect that it says, on a page that is scraped."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from contextlib import AsyncExitStack
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from cli.reading import settings_of
from fakes.nvml import FakeNvml
from penstock.app import endpoints
from penstock.app.endpoints import Frontends
from penstock.app.gpus import open_gpus
from penstock.cli.compound import METRICS_SETTINGS
from penstock.cli.flags.observability import METRICS
from penstock.core.config import config_from_json
from penstock.core.exit_deadline import ExitDeadline
from penstock.metrics.custom import CustomMetrics
from penstock.models.loading.statistics_of import statistics_of
from penstock.models.serving.answers import Gauge, ModelStatistics
from penstock.server.server import InferenceServer
from penstock.settings import Settings
from penstock.system.machine import MachineUsage
from penstock.telemetry.metrics import OwnNames

_DECOUPLED = {"name": "m", "model_transaction_policy": {"decoupled": True}}


class _Server:
    """A facade of one model, which has answered one request in ten seconds."""

    remote = access = residency = None
    releases = SimpleNamespace(aliases=list, went_back=())

    def __init__(self, settings: Settings) -> None:
        counted = statistics_of(config_from_json(_DECOUPLED), settings.metrics.latencies)
        counted.succeeded(10**10, 10**9, 0, 10**9, 0)
        if counted.first_response is not None:
            counted.first_response.observe(7)
        self._models = [ModelStatistics("m", "1", counted)]

    def snapshot(self) -> Iterable[ModelStatistics]:
        return self._models

    def gauges(self) -> Iterable[Gauge]:
        return [Gauge("penstock_llm_waiting_requests", "m", "1", 2)]

    def none(self) -> Iterable[Any]:
        return ()

    histograms = processes = none


@pytest.fixture(autouse=True)
def every_gpu_is_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


class _Opened:
    """What a command line opens: the address of the metrics, their page, and the intervals."""

    def __init__(self) -> None:
        self.addresses: list[str] = []
        self.page = ""
        self.intervals: list[float] = []


async def opened(*flags: str, caplog: pytest.LogCaptureFixture, patch: Any) -> _Opened:
    """The result of `flags`, beside a driver with two GPUs."""
    caplog.set_level(logging.INFO)
    quiet = ("--allow-grpc=false", "--allow-http=false", "--metrics-port=0")
    settings, found = settings_of(*quiet, *flags), _Opened()

    def machine(interval: float) -> MachineUsage:
        found.intervals.append(interval)
        return MachineUsage(interval)

    patch.setattr(endpoints, "MachineUsage", machine)
    async with AsyncExitStack() as stack:
        driver = open_gpus(settings.devices, settings.metrics, [0, 1], FakeNvml())
        usage = stack.enter_context(driver).usage
        if usage is not None:
            usage.read()
            found.intervals.append(usage.interval)
        server = cast(InferenceServer, _Server(settings))
        custom = CustomMetrics(OwnNames())
        frontends = Frontends(server, settings, custom, ExitDeadline(1), gpus=usage)
        await frontends.open(stack)
        listening = re.findall(r"Metrics Service listens at (\S+) ", caplog.text)
        found.addresses = listening
        for address in listening:
            port = address.rpartition(":")[2]
            async with httpx.AsyncClient(verify=False) as client:
                found.page = (await client.get(f"http://127.0.0.1:{port}/metrics")).text
    return found


SHOWN = {
    "--allow-metrics=true": "nv_inference_count",
    "--allow-gpu-metrics=true": "nv_gpu_utilization",
    "--allow-cpu-metrics=true": "nv_cpu_utilization",
    "--metrics-config=counter_latencies=true": "nv_inference_request_duration_us",
    "--metrics-config=histogram_latencies=true": "nv_inference_first_response_histogram_ms",
    "--metrics-config=summary_latencies=true": "nv_inference_request_summary_us",
    "--metrics-config=llm,vllm_names=true": "vllm:num_requests_waiting",
}
"""What switches show, and do not show where they are off."""

VALUES = {
    "--metrics-address=127.0.0.1",
    "--metrics-port=1",
    "--metrics-interval-ms=125",
    "--metrics-config=summary_quantiles=0.25:0.1",
}
"""Other options, each of which has a test below."""


def test_every_option_of_metrics_is_walked() -> None:
    walked = {*SHOWN, *VALUES}
    names = {option.removeprefix("--").partition("=")[0] for option in walked}
    assert names == {flag.name for flag in METRICS.flags}
    settings = {option.split("=")[1] for option in walked if option.startswith("--metrics-config")}
    assert settings == set(METRICS_SETTINGS)


@pytest.mark.contract("CL-33", "CL-34", "CL-36", "ME-18", "ME-25", "ME-26")
@pytest.mark.parametrize("option", SHOWN)
async def test_a_switch_shows_and_hides(
    option: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = SHOWN[option]
    on = await opened(option, caplog=caplog, patch=monkeypatch)
    assert f"\n{family}" in f"\n{on.page}"
    caplog.clear()
    off = await opened(option.replace("=true", "=false"), caplog=caplog, patch=monkeypatch)
    assert family not in off.page
    assert ("nv_inference_count" in off.page) is (option != "--allow-metrics=true")


@pytest.mark.contract("SEC-12")
async def test_without_metrics_nobody_listens(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await opened("--allow-metrics=false", caplog=caplog, patch=monkeypatch)
    assert (found.addresses, found.intervals) == ([], [])


async def test_the_address_and_the_port_are_those_asked_for(
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    unused_tcp_port: int,
) -> None:
    flags = ("--metrics-address=127.0.0.1", f"--metrics-port={unused_tcp_port}")
    found = await opened(*flags, caplog=caplog, patch=monkeypatch)
    assert found.addresses == [f"127.0.0.1:{unused_tcp_port}"]


async def test_the_address_is_that_of_http_by_default(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await opened("--http-address=127.0.0.1", caplog=caplog, patch=monkeypatch)
    assert [address.rpartition(":")[0] for address in found.addresses] == ["127.0.0.1"]


@pytest.mark.contract("CL-35")
async def test_the_interval_is_that_of_the_machine_and_of_its_gpus(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await opened("--metrics-interval-ms=125", caplog=caplog, patch=monkeypatch)
    assert found.intervals == [0.125, 0.125]
    caplog.clear()
    found = await opened(caplog=caplog, patch=monkeypatch)
    assert found.intervals == [2.0, 2.0]


async def test_quantiles_are_those_asked_for(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("summary_latencies=true", "summary_quantiles=0.25:0.1,0.75:0.1")
    flags = (f"--metrics-config={option}" for option in options)
    found = await opened(*flags, caplog=caplog, patch=monkeypatch)
    quantiles = re.findall(r'nv_inference_queue_summary_us.*quantile="([\d.]+)"', found.page)
    assert quantiles == ["0.25", "0.75"]
