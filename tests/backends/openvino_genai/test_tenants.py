"""Tenants and predicted first tokens on a server that is started as a user would, with the engine.

The engine runs one sequence at a time, so that whatever comes meanwhile has to wait.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from backends.conftest import write_settings
from harness.serving import Served, serving
from penstock.protocol import grpc_service_pb2 as pb

pytestmark = pytest.mark.slow

_FAIRNESS_ID = "x-gateway-inference-fairness-id"
_STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"
_PROMPT = "What is a list?"
_TIMES = "x-queue-time", "x-time-to-first-token", "x-total-time"
_ENOUGH = 20  # requests that wait, after which first tokens are predicted


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, gguf_version: Path) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("tenants")
    version = folder / "models" / "m" / "1"
    version.mkdir(parents=True)
    for name in ("model.gguf", "tokenizer.json"):
        (version / name).symlink_to(gguf_version / name)
    write_settings(version, num_kv_blocks=256, max_num_seqs=1)
    (version.parent / "config.pbtxt").write_text('backend: "openvino_genai"\n')
    file = folder / "tenants.json"
    key = f"sha256:{sha256(b'the key').hexdigest()}"
    file.write_text(json.dumps({"tenants": {"with-key": {"api_keys": [key]}}}))
    options = f"--tenants={file}", "--tenant-header=X-Team", "--trust-fairness-id=true"
    with serving(version.parent.parent, folder / "log", *options) as served:
        yield served


class Clients:
    """One of each door, and the metrics page."""

    def __init__(self, served: Served, channel: grpc.aio.Channel, http: httpx.AsyncClient) -> None:
        self._served, self._http = served, http
        self._call = channel.stream_stream(
            _STREAM, pb.ModelInferRequest.SerializeToString, pb.ModelStreamInferResponse.FromString
        )

    async def grpc(
        self, tokens: int, headers: Mapping[str, str], seconds: float | None = None
    ) -> str:
        """The error of a request, empty where all its tokens came; `seconds` to its deadline."""
        call = self._call(iter([_message(tokens)]), metadata=[*headers.items()], timeout=seconds)
        answers = [answer async for answer in call]
        return str(answers[-1].error_message)

    async def http(self, tokens: int, headers: Mapping[str, str]) -> httpx.Response:
        body = {"text_input": _PROMPT, "stream": True, "max_tokens": tokens, "ignore_eos": True}
        url = f"http://{self._served.http}/v2/models/m/generate_stream"
        return await self._http.post(url, json=body, headers=dict(headers))

    async def openai(self, tokens: int, headers: Mapping[str, str]) -> httpx.Response:
        body = {"model": "m", "prompt": _PROMPT, "max_tokens": tokens, "ignore_eos": True}
        url = f"http://{self._served.http}/v1/completions"
        return await self._http.post(url, json=body, headers=dict(headers))

    async def explained(self, tokens: int, tenant: str) -> dict[str, float]:
        """The times of a request, in milliseconds, by their headers."""
        body = {"text_input": _PROMPT, "max_tokens": tokens, "ignore_eos": True}
        url = f"http://{self._served.http}/v2/models/m/generate"
        headers = {_FAIRNESS_ID: tenant, "penstock-explain": "1"}
        told = (await self._http.post(url, json=body, headers=headers)).headers
        return {name: float(told[name]) for name in _TIMES}

    async def by(self, door: str, tokens: int, headers: Mapping[str, str]) -> None:
        """A request that is answered."""
        if door == "grpc":
            assert await self.grpc(tokens, headers) == ""
        elif door == "openai":
            assert (await self.openai(tokens, headers)).status_code == 200
        else:
            assert (await self.http(tokens, headers)).status_code == 200

    async def metric(self, name: str, *labels: str) -> float:
        """The value of the line that has these labels, 0 without one."""
        page = (await self._http.get(self._served.metrics)).text
        for line in re.findall(rf"^penstock_llm_{name}\{{.*", page, re.MULTILINE):
            if all(label in line for label in labels):
                return float(line.rpartition(" ")[2])
        return 0.0

    async def until_queued(self, least: int) -> None:
        await self.until("queued_requests", least)

    async def until(self, name: str, least: int, *labels: str) -> None:
        async with asyncio.timeout(60):
            while await self.metric(name, *labels) < least:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


def _message(tokens: int) -> pb.ModelInferRequest:
    request = pb.ModelInferRequest(model_name="m")
    sampling = json.dumps({"max_tokens": tokens, "ignore_eos": True})
    for name, text in (("text_input", _PROMPT), ("sampling_parameters", sampling)):
        request.inputs.add(name=name, datatype="BYTES", shape=[1])
        request.raw_input_contents.append(len(text).to_bytes(4, "little") + text.encode())
    request.inputs.add(name="stream", datatype="BOOL", shape=[1])
    request.raw_input_contents.append(b"\1")
    return request


@asynccontextmanager
async def _clients(served: Served) -> AsyncIterator[Clients]:
    async with (
        grpc.aio.insecure_channel(served.grpc) as channel,
        httpx.AsyncClient(timeout=None, verify=False) as http,  # the test has a limit of its own
    ):
        yield Clients(served, channel, http)


@pytest.mark.parametrize("door", ["grpc", "http"])
async def test_the_last_to_come_is_not_behind_all_of_another_tenant(
    served: Served, door: str
) -> None:
    """One request of a small tenant, while most of twenty-five of a large one wait."""
    large, small = {_FAIRNESS_ID: f"large-{door}"}, {_FAIRNESS_ID: f"small-{door}"}
    ended: list[str] = []

    async def ask(headers: Mapping[str, str]) -> None:
        await clients.by(door, 20, headers)
        ended.append(headers[_FAIRNESS_ID])

    async with _clients(served) as clients:
        asked = [asyncio.ensure_future(ask(large)) for _ in range(25)]
        await clients.until_queued(12)
        await asyncio.gather(ask(small), *asked)
        assert len(ended) == 26
        assert ended.index(small[_FAIRNESS_ID]) < 20
        for headers, requests in ((large, 25), (small, 1)):
            label = f'tenant="{headers[_FAIRNESS_ID]}"'
            assert await clients.metric("tenant_requests_total", label) == requests
            assert await clients.metric("tenant_generated_tokens_total", label) == 20 * requests


@pytest.mark.parametrize("door", ["grpc", "http"])
@pytest.mark.parametrize(
    ("headers", "tenant"),
    [
        ({_FAIRNESS_ID: "by-id", "x-team": "by-team"}, "by-id"),
        ({_FAIRNESS_ID: "by-id", "api-key": "the key", "x-team": "by-team"}, "with-key"),
        ({"authorization": "Bearer the key", "x-team": "by-team"}, "with-key"),
        ({"x-team": "by-team"}, "by-team"),
        ({}, "anonymous"),
    ],
)
async def test_a_request_counts_for_who_its_headers_name(
    served: Served, door: str, headers: Mapping[str, str], tenant: str
) -> None:
    async with _clients(served) as clients:
        names = "by-id", "with-key", "by-team", "anonymous"
        before = [await clients.metric("tenant_requests_total", f'"{name}"') for name in names]
        await clients.by(door, 2, headers)
        after = [await clients.metric("tenant_requests_total", f'"{name}"') for name in names]
    counted = {name: y - x for name, x, y in zip(names, before, after, strict=True) if y != x}
    assert counted == {tenant: 1}


async def test_ends_of_requests_are_counted_by_tenant(served: Served) -> None:
    """One is answered, one refused by the engine, and one left while it waits for its turn."""
    tenant, label = {_FAIRNESS_ID: "ending"}, 'tenant="ending"'
    async with _clients(served) as clients:
        await clients.by("http", 2, tenant)
        assert "max_tokens" in await clients.grpc(0, tenant)
        busy = asyncio.ensure_future(clients.http(300, {_FAIRNESS_ID: "busy"}))
        await clients.until("tenant_generated_tokens_total", 1, 'tenant="busy"')
        left = asyncio.ensure_future(clients.http(2, tenant))
        await clients.until("tenant_requests_total", 3, label)
        left.cancel()
        await clients.until("tenant_cancelled_requests_total", 1, label)
        assert await clients.metric("tenant_failed_requests_total", label) == 1
        assert await clients.metric("tenant_requests_total", label) == 3
        await busy


@pytest.mark.parametrize("door", ["grpc", "http", "openai"])
async def test_histograms_tell_tenants_apart(served: Served, door: str) -> None:
    """Requests of 5 tokens and of 1, without time between tokens; the name is written plainly."""
    counts = {
        "queue_seconds": 2,
        "time_to_first_token_seconds": 2,
        "inter_token_seconds": 4,
        "time_per_output_token_seconds": 1,
        "request_seconds": 2,
        "prompt_tokens": 2,
        "generated_tokens": 2,
    }
    label = f'tenant="timed__{door}__"'
    async with _clients(served) as clients:
        for tokens in (5, 1):
            await clients.by(door, tokens, {_FAIRNESS_ID: f'timed,"{door}"='})
        await clients.until("generated_tokens_count", 2, label)
        counted = {name: await clients.metric(f"{name}_count", label) for name in counts}
        assert counted == counts
        assert await clients.metric("generated_tokens_sum", label) == 6
        nobodys = [await clients.metric(f"{name}_count", '{model="m"') for name in counts]
        assert nobodys == [0] * len(counts)


async def test_times_of_a_request_have_the_wait_for_its_tenants_turn(served: Served) -> None:
    """The engine has one request ahead, so the last of four waits in the server for the second."""
    async with _clients(served) as clients:
        await clients.until("max_running_requests", 1)  # otherwise more may wait in the engine
        busy = asyncio.ensure_future(clients.http(300, {_FAIRNESS_ID: "first"}))
        await clients.until("tenant_generated_tokens_total", 1, 'tenant="first"')
        waiting = []
        for number, tokens in enumerate((100, 2, 2), 1):
            waiting.append(asyncio.ensure_future(clients.explained(tokens, "patient")))
            await clients.until("tenant_requests_total", number, 'tenant="patient"')
        *others, last = told = await asyncio.gather(*waiting)
        await busy
        queued, first, total = (last[name] for name in _TIMES)
        before = sum(one["x-total-time"] - one["x-queue-time"] for one in others)
        assert before < queued < first < total
        await clients.until("request_seconds_count", 3, 'tenant="patient"')
        observed = [
            1e3 * await clients.metric(f"{name}_seconds_sum", 'tenant="patient"')
            for name in ("queue", "time_to_first_token", "request")
        ]
        sums = [sum(one[name] for one in told) for name in _TIMES]
        assert observed == pytest.approx(sums, abs=0.01)


async def test_a_deadline_before_the_predicted_first_token_is_refused(served: Served) -> None:
    """Once enough requests have waited; one with time enough is answered, and none is harmed."""
    tenant: Any = {_FAIRNESS_ID: "hurried"}
    label = 'tenant="hurried"'
    async with _clients(served) as clients:
        begun = time.monotonic()
        assert await asyncio.gather(*(clients.grpc(20, tenant) for _ in range(_ENOUGH))) == (
            [""] * _ENOUGH
        )
        # By this the time behind about as many is predicted, and it may not be long ago.
        too_soon = (time.monotonic() - begun) / 4
        waiting = [asyncio.ensure_future(clients.grpc(40, tenant)) for _ in range(_ENOUGH)]
        await clients.until_queued(_ENOUGH - 4)
        refused = await clients.http(2, {**tenant, "request-timeout": f"{too_soon:.3f}"})
        over_grpc = await clients.grpc(2, tenant, seconds=too_soon)
        in_time = asyncio.ensure_future(clients.grpc(2, tenant, seconds=3600.0))
        assert refused.status_code == 504
        text = r"the first token of 'm' is predicted in \S+ s, and the deadline is in \S+ s"
        assert re.search(text, refused.text)
        assert re.search(text, over_grpc)
        assert await clients.metric("rejected_total", 'reason="deadline"', label) == 2
        assert set(await asyncio.gather(in_time, *waiting)) == {""}


async def test_what_the_openai_api_refuses_is_a_failed_request_of_its_tenant(
    served: Served,
) -> None:
    async with _clients(served) as clients:
        refused = await clients.openai(0, {_FAIRNESS_ID: "refused"})
        assert refused.status_code == 400
        label = 'tenant="refused"'
        await clients.until("tenant_failed_requests_total", 1, label)
        assert await clients.metric("tenant_requests_total", label) == 1
        assert await clients.metric("tenant_cancelled_requests_total", label) == 0
