"""The names of vLLM that this backend uses exist."""

from __future__ import annotations

import inspect
from dataclasses import fields
from importlib.util import find_spec
from typing import Any

import pytest
from vllm import exceptions, tracing
from vllm.config import LoRAConfig, ModelConfig
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.generate.base.protocol import DeltaMessage
from vllm.inputs.llm import MultiModalDataBuiltins
from vllm.lora.request import LoRARequest
from vllm.outputs import CompletionOutput, RequestOutput
from vllm.pooling_params import PoolingParams
from vllm.reasoning import ReasoningParser, ReasoningParserManager
from vllm.renderers.base import BaseRenderer
from vllm.sampling_params import RequestOutputKind, SamplingParams
from vllm.tasks import POOLING_TASKS
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError
from vllm.v1.metrics.loggers import StatLoggerBase
from vllm.v1.metrics.stats import (
    FinishedRequestStats,
    IterationStats,
    RequestStateStats,
    SchedulerStats,
)
from vllm.v1.spec_decode.metrics import SpecDecodingStats

from penstock_backends.vllm.failures import rejection_reason
from penstock_backends.vllm.inputs.sampling import _LOGPROBS, _OURS


def parameters(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (AsyncLLM.from_engine_args, ["engine_args", "stat_loggers"]),
        (AsyncLLM.generate, ["prompt", "sampling_params", "request_id", "lora_request"]),
        (AsyncLLM.generate, ["trace_headers", "priority", "session_id"]),
        (AsyncLLM.shutdown, ["timeout"]),
        (BaseRenderer.render_cmpl_async, ["prompts"]),
        (AsyncLLM.generate, ["data_parallel_rank"]),
        (AsyncLLM.add_request, ["lora_request", "trace_headers", "priority", "session_id"]),
        (AsyncLLM.add_request, ["data_parallel_rank"]),
        (AsyncLLM.abort, ["request_id", "internal"]),
        (AsyncLLM.get_kv_event_sources, []),
        (AsyncLLM.add_lora, ["lora_request"]),
        (AsyncLLM.remove_lora, ["lora_id"]),
        (AsyncLLM.sleep, ["level", "mode"]),
        (AsyncLLM.wake_up, ["tags"]),
        (AsyncLLM.collective_rpc, ["method"]),
        (AsyncLLM.pause_generation, ["mode", "clear_cache"]),
        (AsyncLLM.resume_generation, []),
        (AsyncLLM.reset_prefix_cache, ["reset_running_requests", "reset_connector"]),
        (LoRARequest, ["lora_name", "lora_int_id", "lora_path"]),
    ],
)
def test_functions_accept_our_arguments(function: Any, names: list[str]) -> None:
    assert set(names) <= set(parameters(function))


def test_the_first_three_arguments_are_positional() -> None:
    expected = ["self", "prompt", "sampling_params", "request_id"]
    assert parameters(AsyncLLM.generate)[:4] == expected
    expected = ["self", "request_id", "prompt", "params"]
    assert parameters(AsyncLLM.add_request)[:4] == expected


def test_an_engine_sleeps_at_a_level_and_wakes_by_tags() -> None:
    """As `EngineCalls` asks it: by position, with the tags that vLLM's allocator has."""
    assert parameters(AsyncLLM.sleep)[:3] == ["self", "level", "mode"]
    assert parameters(AsyncLLM.wake_up)[:2] == ["self", "tags"]
    assert parameters(AsyncLLM.collective_rpc)[:2] == ["self", "method"]
    assert "enable_sleep_mode" in {field.name for field in fields(ModelConfig)}
    assert inspect.signature(AsyncLLM.wake_up).return_annotation in (bool, "bool")


def test_a_recorder_is_called_as_it_expects() -> None:
    expected = ["self", "scheduler_stats", "iteration_stats", "mm_cache_stats", "engine_idx"]
    assert parameters(StatLoggerBase.record) == expected
    assert parameters(StatLoggerBase.__init__) == ["self", "vllm_config", "engine_index"]
    assert {"__init__", "record", "log_engine_initialized"} >= StatLoggerBase.__abstractmethods__


def test_statistics_have_their_names() -> None:
    names = {"num_running_reqs", "num_waiting_reqs", "num_skipped_waiting_reqs", "kv_cache_usage"}
    assert names <= {field.name for field in fields(SchedulerStats)}
    assert names | {"spec_decoding_stats", "running_lora_adapters", "waiting_lora_adapters"} <= {
        field.name for field in fields(SchedulerStats)
    }
    assert IterationStats().num_prompt_tokens == IterationStats().num_generation_tokens == 0
    assert IterationStats().prompt_token_stats.cached_tokens == 0
    drafts = {"num_draft_tokens", "num_accepted_tokens"}
    assert drafts <= {field.name for field in fields(SpecDecodingStats)}
    ended = {"queued_time", "inference_time", "mean_time_per_output_token"}
    assert ended <= {field.name for field in fields(FinishedRequestStats)}


def test_statistics_of_a_request_have_their_names() -> None:
    times = {"queued_ts", "scheduled_ts", "first_token_ts", "last_token_ts"}
    counts = {"num_generation_tokens", "num_preemptions", "first_token_latency"}
    assert times | counts <= {field.name for field in fields(RequestStateStats)}


def test_outputs_have_their_names() -> None:
    names = {"prompt_token_ids", "outputs", "finished", "metrics", "num_cached_tokens"}
    names |= {"prompt_logprobs"}
    assert names <= set(parameters(RequestOutput.__init__))
    names = {"index", "text", "token_ids", "cumulative_logprob", "logprobs", "finish_reason"}
    names |= {"stop_reason"}
    assert names <= {field.name for field in fields(CompletionOutput)}


def test_sampling_parameters_have_their_names() -> None:
    assert {"n", "structured_outputs", *_OURS, *_LOGPROBS} <= set(SamplingParams.__struct_fields__)
    assert "stream_interval" in SamplingParams.__struct_fields__
    assert {"DELTA", "FINAL_ONLY"} <= set(RequestOutputKind.__members__)


def test_engine_arguments_have_the_names_that_are_looked_at() -> None:
    names = {"model", "tokenizer", "dtype", "enable_lora", "quantization"}
    names |= {"tensor_parallel_size", "pipeline_parallel_size", "hf_config_path"}
    names |= {"otlp_traces_endpoint", "served_model_name"}
    assert names | {"generation_config"} <= {field.name for field in fields(AsyncEngineArgs)}


def test_configurations_have_the_names_that_are_looked_at() -> None:
    assert {"max_loras", "max_cpu_loras"} <= {field.name for field in fields(LoRAConfig)}
    assert "enable_sleep_mode" in {field.name for field in fields(ModelConfig)}


def test_spans_are_available_where_opentelemetry_is() -> None:
    assert tracing.is_tracing_available() is (find_spec("opentelemetry.sdk") is not None)


def test_errors_have_their_families() -> None:
    assert issubclass(exceptions.VLLMValidationError, exceptions.VLLMClientError)
    for error in (EngineDeadError, exceptions.QueueOverflowError, exceptions.MaxQueuedTokensError):
        assert not issubclass(error, exceptions.VLLMClientError | ValueError)


def test_refusals_of_the_queue_have_their_reasons_in_metrics() -> None:
    assert rejection_reason(exceptions.QueueOverflowError()) == "engine_requests"
    assert rejection_reason(exceptions.MaxQueuedTokensError()) == "engine_tokens"
    assert rejection_reason(EngineDeadError()) == ""


def test_multimodal_models_and_pooling_have_their_names() -> None:
    assert {"image", "audio", "video"} <= set(MultiModalDataBuiltins.__annotations__)
    names = {"task", "dimensions", "use_activation", "extra_kwargs"}
    assert names <= set(PoolingParams.__struct_fields__)
    assert {"embed", "classify"} <= set(POOLING_TASKS)
    names = {"prompt", "pooling_params", "request_id", "lora_request", "trace_headers", "priority"}
    assert names <= set(parameters(AsyncLLM.encode))


def test_reasoning_parsers_have_their_methods() -> None:
    expected = ["previous_text", "current_text", "delta_text"]
    expected += ["previous_token_ids", "current_token_ids", "delta_token_ids"]
    assert parameters(ReasoningParser.extract_reasoning_streaming)[1:] == expected
    assert parameters(ReasoningParser.extract_reasoning)[1:] == ["model_output", "request"]
    assert {"reasoning", "content"} <= set(DeltaMessage.model_fields)
    assert callable(ReasoningParserManager.get_reasoning_parser)
    assert "reasoning_parser" in {field.name for field in fields(AsyncEngineArgs)}
