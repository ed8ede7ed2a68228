"""vLLM's inside has the names that are touched; where it lacks some, its public API serves."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine import EngineCoreOutput
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.core import EngineCoreProc
from vllm.v1.engine.output_processor import OutputProcessor, RequestOutputCollector
from vllm.v1.engine.utils import CoreEngineProcManager
from vllm.v1.executor.multiproc_executor import WorkerProc
from vllm.v1.metrics.stats import FinishedRequestStats

from backends.exchanging import application, begin, whole
from backends.generation import plain, start, until, usage
from backends.vllm.real.conftest import IN_CORE, SETTINGS, free_port
from backends.vllm.real.test_adapters import text
from backends.vllm.real.test_start_failures import load_error
from penstock.core.config import ModelConfig
from penstock.core.errors import InvalidRequestError
from penstock.testing import RunningInstance, running
from penstock_backends.vllm import VllmBackend
from penstock_backends.vllm.internals import TOUCHES, missing

in_session = pytest.mark.asyncio(loop_scope="session")

NAMES = sorted({name for touch in TOUCHES.values() for name in touch.names})
HIDDEN = {key: f"vllm.v1.engine.async_llm:AsyncLLM.{key}_of_old" for key in TOUCHES}


def parameters(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


@pytest.mark.parametrize("name", NAMES)
def test_the_installed_vllm_has(name: str) -> None:
    assert missing([name]) == []


async def test_a_collector_can_be_told_where_to_put_outputs() -> None:
    """Outputs are put by name into an object that may have an attribute of its own."""
    collector, put = RequestOutputCollector(RequestOutputKind.DELTA, "1"), list[Any]()
    assert (collector.request_id, collector.get_nowait()) == ("1", None)
    collector.put = put.append
    collector.put("an output")
    assert put == ["an output"]
    assert ".queue.put(" in inspect.getsource(OutputProcessor)
    assert "get_nowait" in inspect.getsource(AsyncLLM.generate)


def test_processes_of_an_engine_are_begun_by_functions_of_these_names() -> None:
    begun = inspect.getsource(CoreEngineProcManager) + inspect.getsource(WorkerProc)
    assert "target=EngineCoreProc.run_engine_core" in begun
    assert "target=WorkerProc.worker_main" in begun
    assert {"args", "kwargs"} <= set(parameters(EngineCoreProc.run_engine_core))


def test_outputs_pass_the_processor_that_is_watched() -> None:
    assert parameters(OutputProcessor.process_outputs)[1] == "engine_core_outputs"
    assert parameters(OutputProcessor.add_request)[1] == "request"
    assert "request_id" in {field.name for field in fields(FinishedRequestStats)}
    assert {"request_id", "new_token_ids"} <= set(EngineCoreOutput.__struct_fields__)


# -- an engine of which a name of each touch is hidden ---------------------------------------------


@dataclass(frozen=True)
class Bare:
    """The engine, what was logged while it started, and its port of KV events.

    None ever comes: without prefix caching no block is announced.
    """

    instance: RunningInstance
    log: list[str]
    port: int


class Lines(logging.Handler):
    """The messages of a logger."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def hide(patch: pytest.MonkeyPatch) -> None:
    """Have each touch need a name that no vLLM has."""
    for key, touch in list(TOUCHES.items()):
        patch.setitem(TOUCHES, key, replace(touch, names=(*touch.names, HIDDEN[key])))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def bare(version: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bare]:
    folder, lines, port = tmp_path_factory.mktemp("bare"), Lines(), free_port()
    events = {"enable_kv_cache_events": True, "endpoint": f"tcp://*:{port}"}
    values = {**SETTINGS, **IN_CORE, "model": str(version / "model"), "kv_events_config": events}
    (folder / "model.json").write_text(json.dumps(values))
    (folder / "multi_lora.json").write_text(json.dumps({"loud": str(version / "loud")}))
    logger = logging.getLogger("penstock_backends.vllm.internals")
    logger.addHandler(lines)
    logger.setLevel(logging.WARNING)  # a library of vLLM's sets that of the root to ERROR
    with pytest.MonkeyPatch.context() as patch:
        hide(patch)
        async with running(VllmBackend, ModelConfig(name="m"), folder) as instance:
            yield Bare(instance, lines.lines, port)
    logger.removeHandler(lines)
    logger.setLevel(logging.NOTSET)


@in_session
async def test_missing_names_are_told_once_at_load(bare: Bare) -> None:
    (line,) = bare.log
    assert line.startswith(f"the installed vLLM has no {', '.join(HIDDEN.values())}: wasted tokens")


@in_session
@pytest.mark.parametrize("sampling", [{}, {"lora_name": "loud"}])
async def test_texts_are_the_same_without_the_names(
    bare: Bare, instance: RunningInstance, sampling: Any
) -> None:
    expected = await text(instance, max_tokens=20, **sampling)
    assert await text(bare.instance, max_tokens=20, **sampling) == expected


@in_session
async def test_wrong_request_is_refused_without_the_names(bare: Bare) -> None:
    with pytest.raises(InvalidRequestError, match="regex"):
        await text(bare.instance, structured_outputs={"regex": "[0-"})


@in_session
async def test_schema_is_left_to_vllm_without_the_names(bare: Bare) -> None:
    sampling: Any = {"ignore_eos": False, "structured_outputs": {"json": {"enum": ["a", 7]}}}
    assert json.loads(await text(bare.instance, max_tokens=20, **sampling)) in ("a", 7)


@in_session
async def test_leaving_frees_the_engine_without_the_names(bare: Bare) -> None:
    async with aclosing(start(bare.instance, max_tokens=900)) as responses:
        await anext(responses)
    await until(lambda: usage(bare.instance) == (0, 0, 0.0), 0.01)
    metrics = bare.instance.backend.metrics()
    assert metrics["penstock_llm_cancelled_requests_total"] == 1
    assert metrics["penstock_llm_wasted_tokens_total"] == 0


@in_session
async def test_adapters_come_and_go_by_vllms_routes_without_the_names(
    bare: Bare, instance: RunningInstance
) -> None:
    """Exchanges side by side name the adapter alike, and one after them names it anew."""
    asked: Any = {"prompt": "a", "max_tokens": 8, "temperature": 0, "model": "m:loud"}
    more: Any = {"parameters": {"adapter": "loud", "model": "m:loud"}}
    answers = []
    for backend in (instance.backend, bare.instance.backend):
        async with application(backend) as app:
            exchanges = [begin(app, "/v1/completions", asked, **more) for _ in range(3)]
            answers += await asyncio.gather(*map(whole, exchanges))
            answers.append(await whole(begin(app, "/v1/completions", asked, **more)))
    assert [status for status, _ in answers] == [200] * 8
    assert len({json.loads(body)["choices"][0]["text"] for _, body in answers}) == 1
    assert {json.loads(body)["model"] for _, body in answers} == {"m:loud"}


@in_session
async def test_silent_publisher_is_told_by_readiness(bare: Bare) -> None:
    backend = bare.instance.backend
    assert backend.unready().startswith(f"no KV events come from tcp://127.0.0.1:{bare.port}")
    assert await backend.healthy()
    assert [plain(r) async for r in start(bare.instance, max_tokens=3)]


@in_session
async def test_failed_start_says_what_vllm_says_without_the_names(
    version: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide(monkeypatch)
    with socket.create_server(("", 0)) as serving:
        endpoint = f"tcp://*:{serving.getsockname()[1]}"
        events = {"enable_kv_cache_events": True, "endpoint": endpoint}
        said = await load_error(tmp_path, version / "model", kv_events_config=events, **IN_CORE)
    assert "See root cause above" in said


@in_session
async def test_an_engine_that_runs_is_begun_by_functions_of_vllms(
    instance: RunningInstance,
) -> None:
    assert EngineCoreProc.run_engine_core.__module__ == "vllm.v1.engine.core"
