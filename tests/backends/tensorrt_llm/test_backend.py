"""The backend over a stand-in whose signatures are those of the releases, each call checked."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.generation import until
from backends.tensorrt_llm.conftest import YAML, WriteModel
from penstock.core.config import ModelConfig
from penstock.core.errors import (
    InferenceError,
    InternalError,
    InvalidRequestError,
    ModelLoadError,
    RequestCancelledError,
    UnavailableError,
)
from penstock.core.request import InferenceResponse
from penstock.core.tensor import DataType, Tensor
from penstock.core.timeline import Trace
from penstock.testing import RunningInstance, running
from penstock_backends.tensorrt_llm import TensorRtLlmBackend

pytestmark = [pytest.mark.usefixtures("stand_in"), pytest.mark.usefixtures("release")]


@asynccontextmanager
async def opened(folder: Path, config: ModelConfig | None = None) -> AsyncIterator[RunningInstance]:
    async with running(TensorRtLlmBackend, config or ModelConfig(name="m"), folder) as instance:
        yield instance


@pytest.fixture
async def instance(version: WriteModel, release: str, stand_in: None) -> AsyncIterator[Any]:
    async with opened(version(YAML + "  multimodal: true\nenable_lora: true\n")) as instance:
        yield instance


def sampling(**given: Any) -> dict[str, Any]:
    """Sampling fields as inputs of the declared datatypes."""
    kinds = {
        "max_tokens": np.int32,
        "best_of": np.int32,
        "top_k": np.int32,
        "temperature": np.float32,
        "top_p": np.float32,
        "seed": np.uint64,
    }
    return {
        f"sampling_param_{name}": np.array([value], kinds[name]) if name in kinds else value
        for name, value in given.items()
    }


def on(*names: str) -> dict[str, Any]:
    return {name: np.array([True]) for name in names}


async def ask(
    instance: RunningInstance, prompt: str = "hello", *, id: Any = "", **inputs: Any
) -> list[InferenceResponse]:
    return [one async for one in instance.infer({"text_input": prompt, **inputs}, id=id)]


def text(response: InferenceResponse) -> str:
    (only,) = response.outputs["text_output"].elements()
    return only.decode()


def llm(instance: RunningInstance) -> Any:
    return instance.backend._engine._llm  # type: ignore[attr-defined]


@pytest.mark.contract("TL-03")
async def test_an_answer_in_one_piece(instance: RunningInstance) -> None:
    (response,) = await ask(instance, **sampling(max_tokens=3))
    assert text(response) == " w0 w1 w2"
    assert response.final
    assert set(response.outputs) == {"text_output"}


@pytest.mark.contract("TL-05")
async def test_a_stream_repeats_the_text_so_far(instance: RunningInstance) -> None:
    responses = await ask(instance, **on("streaming"), **sampling(max_tokens=3))
    texts = [text(one) for one in responses]
    assert texts[-1] == " w0 w1 w2"
    assert all(after.startswith(before) for before, after in itertools.pairwise(texts))
    assert [one.final for one in responses] == [False] * (len(texts) - 1) + [True]


async def test_a_slow_reader_gets_the_latest_text(instance: RunningInstance) -> None:
    answers = instance.infer({"text_input": "hello", **on("streaming"), **sampling(max_tokens=40)})
    first = await anext(answers)
    await until(lambda: llm(instance).active == 0)
    rest = [text(one) async for one in answers]
    assert text(first) == " w0"
    assert len(rest) < 10
    assert rest[-1].count(" w") == 40


async def test_each_token_has_a_response_where_it_is_asked_for(instance: RunningInstance) -> None:
    inputs = {"text_input": "hello", **on("streaming"), **sampling(max_tokens=40)}
    answers = instance.infer(inputs, {"penstock_coalesce": False})
    assert len([one async for one in answers]) == 40


@pytest.mark.contract("TL-05", "TL-07")
async def test_a_stream_needs_a_decoupled_model(version: WriteModel) -> None:
    async with opened(version("model: tiny\ntriton_config: {decoupled: false}")) as instance:
        with pytest.raises(InvalidRequestError) as refused:
            await ask(instance, **on("streaming"))
        assert refused.value.message == (
            "Error generating request: Streaming is only supported in decoupled mode."
        )
        assert text((await ask(instance, **sampling(max_tokens=1)))[0]) == " w0"


@pytest.mark.contract("TL-03")
async def test_sampling_reaches_the_engine(instance: RunningInstance) -> None:
    given = sampling(max_tokens=5, temperature=0.5, top_k=7, top_p=0.25, seed=2**64 - 1, best_of=2)
    (response,) = await ask(
        instance,
        **given,
        **on("return_finish_reason", "return_stop_reason"),
        sampling_param_stop=["w2", "never"],
    )
    got = llm(instance).sampling
    assert (got.max_tokens, got.temperature, got.top_k, got.top_p) == (5, 0.5, 7, 0.25)
    assert (got.seed, got.best_of, got.stop) == (2**64 - 1, 2, ["w2", "never"])
    assert (got.exclude_input_from_output, got.return_perf_metrics) == (False, False)
    assert text(response) == " w0 w1 "
    assert response.outputs["finish_reason"].elements() == [b"stop"]
    assert response.outputs["stop_reason"].elements() == [b"w2"]


@pytest.mark.contract("TL-04")
async def test_numbers_have_the_declared_datatypes(instance: RunningInstance) -> None:
    """Upstream sends each as text."""
    (response,) = await ask(
        instance,
        **sampling(max_tokens=2),
        **on("return_cumulative_logprob", "sampling_param_return_perf_metrics"),
    )
    got = {
        name: (tensor.datatype, tensor.numpy().tolist())
        for name, tensor in response.outputs.items()
        if name != "text_output"
    }
    days = 30 * 86400 * 10**9
    assert got == {
        "cumulative_logprob": (DataType.FP32, [-1.0]),
        "kv_cache_reused_block": (DataType.INT32, [3]),
        "kv_cache_missed_block": (DataType.INT32, [1]),
        "kv_cache_alloc_new_blocks": (DataType.INT32, [2]),
        "kv_cache_alloc_total_blocks": (DataType.INT32, [5]),
        "kv_cache_hit_rate": (DataType.FP32, [0.75]),
        "arrival_time_ns": (DataType.INT64, [days + 1000]),
        "first_scheduled_time_ns": (DataType.INT64, [days + 2000]),
        "first_token_time_ns": (DataType.INT64, [days + 3000]),
        "last_token_time_ns": (DataType.INT64, [days + 4000]),
        "acceptance_rate": (DataType.FP32, [0.5]),
        "total_accepted_draft_tokens": (DataType.INT32, [7]),
        "total_draft_tokens": (DataType.INT32, [14]),
    }


@pytest.mark.contract("TL-06")
async def test_a_stop_request_ends_the_one_with_its_id(instance: RunningInstance) -> None:
    inputs = {"text_input": "@endless", **on("streaming")}
    asked, other = instance.infer(inputs, id="7"), instance.infer(inputs, id="8")
    await anext(asked)
    await anext(other)
    with pytest.raises(RequestCancelledError, match=r"^Request cancelled by client$"):
        await ask(instance, "", id="7", **on("stop"))
    with pytest.raises(RequestCancelledError, match=r"^Request cancelled by client$"):
        _ = [one async for one in asked]
    await until(lambda: llm(instance).active == 1)
    assert text(await anext(other))
    await other.aclose()


@pytest.mark.contract("TL-06")
async def test_a_stop_request_needs_an_id(instance: RunningInstance) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        await ask(instance, **on("stop"))
    assert refused.value.message == "A request id must be provided for request cancellation"


@pytest.mark.contract("TL-23")
async def test_a_client_that_leaves_ends_its_request_at_once(instance: RunningInstance) -> None:
    answers = instance.infer({"text_input": "@endless", **on("streaming")})
    await anext(answers)
    await answers.aclose()
    assert llm(instance).requests[-1].aborted()
    await until(lambda: llm(instance).active == 0)
    metrics = instance.backend.metrics()
    assert metrics["penstock_llm_cancelled_requests_total"] == 1
    assert metrics["penstock_llm_running_requests"] == 0


async def test_clients_that_leave_do_not_disturb_others(instance: RunningInstance) -> None:
    leaving = [instance.infer({"text_input": "@endless", **on("streaming")}) for _ in range(5)]
    staying = asyncio.create_task(ask(instance, **sampling(max_tokens=30)))
    for answers in leaving:
        await anext(answers)
        await answers.aclose()
    (response,) = await staying
    assert text(response).count(" w") == 30
    await until(lambda: llm(instance).active == 0)


@pytest.mark.contract("TL-07")
@pytest.mark.parametrize(
    ("prompt", "kind", "message"),
    [
        ("@refuse", InvalidRequestError, "the prompt is longer than max_seq_len"),
        ("@fail", InternalError, "a kernel failed"),
        ("@silent", InternalError, "the engine ended the request without a last output"),
    ],
)
async def test_errors_of_the_engine(
    instance: RunningInstance, prompt: str, kind: type[InferenceError], message: str
) -> None:
    with pytest.raises(kind) as failed:
        await ask(instance, prompt, **sampling(max_tokens=4))
    assert failed.value.message == f"Error generating request: {message}"
    assert text((await ask(instance, **sampling(max_tokens=1)))[0]) == " w0"


async def test_what_the_engine_cancels_is_cancelled(instance: RunningInstance) -> None:
    with pytest.raises(RequestCancelledError):
        await ask(instance, "@cancel")


async def test_the_engines_death_ends_all_requests(instance: RunningInstance) -> None:
    waiting = asyncio.create_task(ask(instance, "@endless"))
    with pytest.raises(UnavailableError, match="unhealthy TensorRT-LLM engine"):
        await ask(instance, "@die")
    with pytest.raises(UnavailableError):
        await waiting
    assert not await instance.backend.healthy()
    with pytest.raises(UnavailableError):
        await ask(instance)


@pytest.mark.contract("TL-07")
@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"lora_name": "a", "lora_path": "/"},
            "lora_id, lora_name, and lora_path must all be provided together",
        ),
        (
            {"lora_id": np.array([1], np.uint64), "lora_name": "a", "lora_path": "/nowhere"},
            "lora_path does not exist on the Triton server's filesystem: /nowhere",
        ),
        (
            {
                "lora_id": np.array([1], np.uint64),
                "lora_name": "a",
                "lora_path": "/",
                "lora_ckpt_source": "gguf",
            },
            "lora_ckpt_source must be one of ('hf', 'nemo'), got 'gguf'",
        ),
        ({"image_url": "file:///etc/passwd"}, "must hold http:, https: or data: URLs"),
        ({"image_url": "/etc/passwd"}, "must hold http:, https: or data: URLs"),
        (
            {"sampling_param_logits_post_processor_name": "x"},
            "Unknown logits post-processor 'x'. Processors must be declared under "
            "'logits_post_processors' in model.yaml. Available: none configured",
        ),
        ({"text_input": ["a", "b"]}, "must hold one prompt, not 2"),
        ({"text_input": ""}, "the prompt is empty"),
        (sampling(max_tokens=0), "'sampling_param_max_tokens' must be at least 1, not 0"),
        (sampling(max_tokens=10**9), "'sampling_param_max_tokens' must be at most"),
        (sampling(best_of=10**6), "'sampling_param_best_of' must be at most 2048"),
        (sampling(top_p=1.5), "'sampling_param_top_p' must be at most 1"),
        (sampling(temperature=float("nan")), "must be a finite number"),
        ({"sampling_param_stop": [""]}, "must not hold an empty text"),
        (
            {"sampling_param_top_k": np.array([1, 2], np.int32)},
            "Expected a scalar tensor for tensor sampling_param_top_k",
        ),
    ],
)
async def test_what_cannot_be_served_is_refused_by_name(
    instance: RunningInstance, given: dict[str, Any], message: str
) -> None:
    before = len(llm(instance).requests)
    with pytest.raises(InvalidRequestError) as refused:
        await ask(instance, **{"prompt": "hello"} | {"text_input": "hello"} | given)
    assert message in refused.value.message
    assert refused.value.message.startswith("Error generating request: ")
    assert len(llm(instance).requests) == before


async def test_an_adapter_reaches_the_engine(instance: RunningInstance, tmp_path: Path) -> None:
    adapter: dict[str, Any] = {
        "lora_id": np.array([3], np.uint64),
        "lora_name": "a",
        "lora_path": str(tmp_path),
    }
    await ask(instance, **adapter, **sampling(max_tokens=1), lora_ckpt_source="nemo")
    request = llm(instance).lora_request
    assert (
        request.lora_int_id,
        request.lora_name,
        request.lora_path,
        request.lora_ckpt_source,
    ) == (
        3,
        "a",
        str(tmp_path),
        "nemo",
    )


async def test_a_model_without_adapters_or_images_says_so(version: WriteModel) -> None:
    async with opened(version()) as instance:
        adapter: dict[str, Any] = {
            "lora_id": np.array([1], np.uint64),
            "lora_name": "a",
            "lora_path": "/nowhere",
        }
        with pytest.raises(InvalidRequestError, match=r"LoRA feature is not enabled\.$"):
            await ask(instance, **adapter)
        with pytest.raises(InvalidRequestError, match="'image_url' is for models that take images"):
            await ask(instance, image_url="data:,x")


@pytest.mark.contract("TL-24", "TL-26", "TL-25", "TL-27")
async def test_reports_of_the_engine_become_metrics(instance: RunningInstance) -> None:
    answers = instance.infer({"text_input": "one two three @endless", **on("streaming")})
    await anext(answers)
    await until(
        lambda: (
            instance.backend.metrics().get('nv_trt_llm_request_metrics{request_type="active"}') == 1
        ),
        0.01,
    )
    metrics = instance.backend.metrics()
    blocks = "nv_trt_llm_kv_cache_block_metrics"
    requests = "nv_trt_llm_request_metrics"
    assert metrics["penstock_llm_running_requests"] == 1
    assert metrics["penstock_llm_kv_cache_usage"] == 0.01
    assert metrics["penstock_llm_prompt_tokens_total"] == 4
    assert {
        name: metrics[f'{requests}{{request_type="{name}"}}']
        for name in ("waiting", "context", "scheduled", "max", "active")
    } == {
        "waiting": 0,
        "context": 0,
        "scheduled": 1,
        "max": 64,
        "active": 1,
    }
    assert {
        name: metrics[f'{blocks}{{kv_cache_block_type="{name}"}}']
        for name in ("fraction", "tokens_per", "used", "free", "max")
    } == {
        "fraction": 0.01,
        "tokens_per": 32,
        "used": 1,
        "free": 99,
        "max": 100,
    }
    assert metrics['nv_trt_llm_runtime_memory_metrics{memory_type="gpu"}'] == 20
    await answers.aclose()
    await until(lambda: llm(instance).active == 0)
    await until(lambda: instance.backend.metrics()["penstock_llm_running_requests"] == 0)
    assert instance.backend.metrics()[f'{requests}{{request_type="active"}}'] == 0


async def test_requests_are_observed(instance: RunningInstance) -> None:
    await ask(instance, **on("streaming"), **sampling(max_tokens=3))
    await ask(instance, **sampling(max_tokens=3))
    histograms: Any = instance.backend.histograms()
    counted = {name: histogram.buckets[-1][1] for name, histogram in histograms.items()}
    assert counted["penstock_llm_request_seconds"] == 2
    assert counted["penstock_llm_time_to_first_token_seconds"] == 1


async def test_a_traced_request_tells_of_its_tokens(instance: RunningInstance) -> None:
    timeline = Trace(1).root
    inputs = {"text_input": "a b c", **sampling(max_tokens=3, temperature=0.5)}
    responses = [one async for one in instance.infer(inputs, timeline=timeline)]
    assert len(responses) == 1
    facts = timeline.facts
    assert facts["gen_ai.provider.name"] == "tensorrt_llm"
    assert facts["gen_ai.usage.input_tokens"] == 3
    assert facts["gen_ai.usage.output_tokens"] == 3
    assert facts["gen_ai.response.finish_reasons"] == ["length"]
    assert facts["gen_ai.request.temperature"] == 0.5


async def test_an_engine_that_does_not_start_fails_the_load(version: WriteModel) -> None:
    with pytest.raises(ModelLoadError, match=r"cannot start with '.*model\.yaml': CUDA out of"):
        async with opened(version("model: broken")):
            raise AssertionError("it was loaded")


async def test_an_unknown_argument_fails_the_load_by_name(version: WriteModel) -> None:
    with pytest.raises(ModelLoadError, match="max_seq_length"):
        async with opened(version("model: tiny\nmax_seq_length: 5")):
            raise AssertionError("it was loaded")


async def test_engine_folders_run_where_the_release_still_does(
    version: WriteModel, release: str
) -> None:
    folder = version("model: engine\nkv_cache_config: {}")
    (folder / "engine").mkdir()
    (folder / "engine" / "rank0.engine").touch()
    if release == "1.2":
        async with opened(folder) as instance:
            assert llm(instance).arguments["model"] == str(folder / "engine")
    else:
        with pytest.raises(ModelLoadError) as refused:
            async with opened(folder):
                raise AssertionError("it was loaded")
        assert refused.value.message == (
            "this TensorRT-LLM no longer runs TensorRT engines; give 'model' in model.yaml"
        )


@pytest.mark.contract("TL-02")
async def test_every_call_binds_to_the_installed_package(
    instance: RunningInstance, tmp_path: Path
) -> None:
    """The stand-in binds each to the facts; the package itself is asked too, where there is one."""
    calls = importlib.import_module("tensorrt_llm.facts").CALLS
    adapter: dict[str, Any] = {
        "lora_id": np.array([3], np.uint64),
        "lora_name": "a",
        "lora_path": str(tmp_path),
    }
    await ask(instance, **adapter, **on("return_cumulative_logprob"), **sampling(max_tokens=1))
    methods = {(owner, method) for owner, method, _ in calls}
    assert {
        ("LLM", "__init__"),
        ("LLM", "generate_async"),
        ("LLM", "get_stats_async"),
        ("SamplingParams", "__init__"),
    } <= methods
    installed = _installed()
    for owner, method, names in calls if installed else ():
        given = inspect.signature(getattr(getattr(installed, owner), method))
        given.bind(None, **dict.fromkeys(names))


def _installed() -> Any:
    """The package itself, if this environment has it besides the stand-in."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        path = distribution("tensorrt_llm").locate_file("tensorrt_llm/llmapi/__init__.py")
    except PackageNotFoundError:
        return None
    spec = importlib.util.spec_from_file_location("installed_tensorrt_llm", str(path))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_declared_text_stays_text() -> None:
    """A configuration of upstream's may say that a number comes as text."""
    from penstock.core.config import Output
    from penstock_backends.tensorrt_llm.answer import OutputEncoder

    declared = Output(name="cumulative_logprob", data_type=DataType.BYTES, dims=(-1,))
    encoder = OutputEncoder(ModelConfig(name="m", output=(declared,)))
    tensor: Tensor = encoder.tensor("cumulative_logprob", [-1.5, None])
    assert tensor.elements() == [b"-1.5", b"None"]
