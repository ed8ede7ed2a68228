"""The model `tensorrt_llm` of the five-model layout: token ids in and out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.generation import until
from backends.tensorrt_llm.asking import inputs, llm, on
from backends.tensorrt_llm.conftest import YAML, WriteModel
from penstock.core.config import ModelConfig, Parameter
from penstock.core.errors import InvalidRequestError, ModelLoadError, RequestCancelledError
from penstock.core.request import InferenceResponse
from penstock.testing import RunningInstance, running
from penstock_backends.tensorrt_llm import TensorRtLlmTokensBackend
from penstock_backends.tensorrt_llm.token_face import TokenFace

pytestmark = [pytest.mark.usefixtures("stand_in"), pytest.mark.usefixtures("release")]


DECLARED = {one.name: one.data_type.numpy for one in TokenFace.inputs if one.data_type}
"""The type of each input, by its name."""


def prompt(*ids: int, length: int = 3, **given: Any) -> dict[str, Any]:
    """A request of the model `tensorrt_llm`."""
    array = np.array(ids, np.int32)
    given = {"input_lengths": len(ids), "request_output_len": length, **given}
    return {"input_ids": array, **inputs(**given)}


async def tokens(instance: RunningInstance, **given: Any) -> list[InferenceResponse]:
    return [one async for one in instance.infer(given)]


def ids(response: InferenceResponse) -> list[Any]:
    return list(response.outputs["output_ids"].numpy().tolist())


@pytest.fixture
async def model(version: WriteModel, release: str, stand_in: None) -> AsyncIterator[Any]:
    config = ModelConfig(name="tensorrt_llm")
    async with running(
        TensorRtLlmTokensBackend, config, version(YAML + "max_seq_len: 2048")
    ) as instance:
        yield instance


async def test_candidates_share_the_time_of_a_token(model: RunningInstance) -> None:
    """Of two candidates with a token each, none is after the first."""
    histograms: Any = model.backend.histograms()
    times = histograms["penstock_llm_time_per_output_token_seconds"]
    for length, counted in ((1, 0), (2, 1)):
        given = {"num_return_sequences": 2, **on("streaming")}
        await tokens(model, **prompt(5, 6, 7, length=length, **given))
        assert times.buckets[-1][1] == counted


@pytest.mark.contract("TL-10", "TL-12")
async def test_tokens_go_in_and_out(model: RunningInstance) -> None:
    (response,) = await tokens(model, **prompt(5, 6, 7))
    assert ids(response) == [[5, 6, 7, 1000, 1001, 1002]]
    assert response.outputs["sequence_length"].numpy().tolist() == [6]
    assert response.outputs["batch_index"].numpy().tolist() == [0]
    assert response.final


@pytest.mark.contract("TL-11")
async def test_the_prompt_can_be_left_out(model: RunningInstance) -> None:
    (response,) = await tokens(model, **prompt(5, 6), **on("exclude_input_in_output"))
    assert ids(response) == [[1000, 1001, 1002]]


async def test_a_parameter_leaves_the_prompt_out(version: WriteModel) -> None:
    parameters = {"exclude_input_in_output": Parameter("True")}
    config = ModelConfig(name="tensorrt_llm", parameters=parameters)
    async with running(TensorRtLlmTokensBackend, config, version()) as instance:
        (response,) = await tokens(instance, **prompt(5, 6))
        assert ids(response) == [[1000, 1001, 1002]]


async def test_a_stream_has_each_token_once(model: RunningInstance) -> None:
    responses = await tokens(model, **prompt(5, 6, length=50), **on("streaming"))
    assert [one for response in responses for one in ids(response)[0]] == [*range(1000, 1050)]
    assert [one.final for one in responses][-1]


async def test_a_slow_reader_of_tokens_misses_none(model: RunningInstance) -> None:
    answers = model.infer({**prompt(5, length=40), **on("streaming")})
    found = ids(await anext(answers))[0]
    await until(lambda: llm(model).active == 0)
    rest = [ids(one)[0] async for one in answers]
    assert len(rest) < 10
    assert [*found, *(one for row in rest for one in row)] == [*range(1000, 1040)]


@pytest.mark.contract("TL-11")
async def test_sampling_of_the_layout_reaches_the_engine(model: RunningInstance) -> None:
    given = inputs(
        end_id=2,
        pad_id=0,
        runtime_top_k=4,
        runtime_top_p=0.5,
        temperature=0.25,
        len_penalty=2.0,
        repetition_penalty=1.5,
        min_tokens=1,
        beam_width=3,
        early_stopping=np.array([True]),
        seed=np.array([2**64 - 1], np.uint64),
        guided_decoding_guide_type="regex",
        guided_decoding_guide="a+",
    )
    (response,) = await tokens(model, **prompt(5), **given)
    got = llm(model).sampling
    assert (got.end_id, got.pad_id, got.top_k, got.top_p) == (2, 0, 4, 0.5)
    assert (got.temperature, got.length_penalty, got.repetition_penalty) == (0.25, 2.0, 1.5)
    assert (got.min_tokens, got.early_stopping, got.seed) == (1, 1, 2**64 - 1)
    assert (got.use_beam_search, got.best_of, got.n) == (True, 3, 3)
    assert (got.guided_decoding.regex, got.detokenize) == ("a+", False)
    assert np.array(ids(response)).shape == (3, 4)
    assert response.outputs["sequence_length"].numpy().tolist() == [4, 4, 4]


@pytest.mark.contract("TL-11")
@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("runtime_top_p_min", "top_p_min", 0.25),
        ("runtime_top_p_decay", "top_p_decay", 0.5),
        ("runtime_top_p_reset_ids", "top_p_reset_ids", 3),
        ("beam_search_diversity_rate", "beam_search_diversity_rate", 0.5),
        ("presence_penalty", "presence_penalty", 0.5),
        ("frequency_penalty", "frequency_penalty", -0.5),
    ],
)
async def test_each_number_of_the_layout_reaches_the_engine(
    model: RunningInstance, name: str, field: str, value: float
) -> None:
    await tokens(model, **prompt(5), **inputs(**{name: np.array([value], DECLARED[name])}))
    assert getattr(llm(model).sampling, field) == value


@pytest.mark.contract("TL-11")
@pytest.mark.parametrize(
    "name",
    """
    draft_input_ids decoder_input_ids decoder_input_lengths draft_logits draft_acceptance_threshold
    prompt_embedding_table prompt_vocab_size lora_task_id lora_weights lora_config
    """.split(),
)
async def test_inputs_of_the_removed_backend_are_refused_by_name(
    model: RunningInstance, name: str
) -> None:
    with pytest.raises(InvalidRequestError, match=f"'{name}'"):
        await tokens(model, **prompt(5), **inputs(**{name: np.zeros(1, DECLARED[name])}))


@pytest.mark.contract("TL-11")
async def test_words_of_one_token_and_of_several_stop(model: RunningInstance) -> None:
    words = np.array([[9, 1001, 1002, 1004], [1, 3, 4, -1]], np.int32)
    (response,) = await tokens(
        model,
        **prompt(5, length=20),
        stop_words_list=words,
        bad_words_list=words,
        **on("exclude_input_in_output"),
    )
    got = llm(model).sampling
    assert (got.stop_token_ids, got.stop) == ([9, 1004], [" w1 w2"])
    assert (got.bad_token_ids, got.bad) == ([9, 1004], [" w1 w2"])
    assert ids(response) == [[1000, 1001, 1002]]


@pytest.mark.contract("TL-12")
async def test_other_outputs_are_asked_for(model: RunningInstance) -> None:
    wanted = (
        "return_log_probs",
        "return_context_logits",
        "return_perf_metrics",
        "return_num_input_tokens",
        "return_num_output_tokens",
    )
    (response,) = await tokens(model, **prompt(5, 6, length=2), **on(*wanted))
    got = {name: one.numpy().tolist() for name, one in response.outputs.items()}
    assert got["cum_log_probs"] == [-1.0]
    assert got["output_log_probs"] == [[-0.5, -0.5]]
    assert got["context_logits"] == [[0.5, 0.25]]
    assert (got["num_input_tokens"], got["num_output_tokens"]) == ([2], [2])
    assert (got["kv_cache_reused_blocks"], got["acceptance_rate"]) == ([3], [0.5])
    assert got["arrival_time_ns"] == [30 * 86400 * 10**9 + 1000]
    assert response.outputs["arrival_time_ns"].datatype == "INT64"


async def test_a_model_that_batches_has_the_dimension(version: WriteModel) -> None:
    config = ModelConfig(name="tensorrt_llm", max_batch_size=4)
    async with running(TensorRtLlmTokensBackend, config, version()) as instance:
        given = {name: one[None] for name, one in prompt(5, 6, length=2).items()}
        (response,) = await tokens(instance, **given)
        assert response.outputs["output_ids"].shape == (1, 1, 4)
        assert response.outputs["sequence_length"].shape == (1, 1)
        several = {name: np.concatenate([one, one]) for name, one in given.items()}
        with pytest.raises(InvalidRequestError):
            await tokens(instance, **several)


async def test_a_stop_request_ends_tokens_too(model: RunningInstance) -> None:
    answers = model.infer({**prompt(5, length=1 << 20), **on("streaming")}, id="7")
    await anext(answers)
    with pytest.raises(RequestCancelledError):
        _ = [one async for one in model.infer({**prompt(1), **on("stop")}, id="7")]
    with pytest.raises(RequestCancelledError):
        _ = [one async for one in answers]
    await until(lambda: llm(model).active == 0)


@pytest.mark.contract("TL-11")
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"draft_input_ids": 3}, "'draft_input_ids' is not supported"),
        ({"prompt_embedding_table": 3}, "'prompt_embedding_table' is not supported"),
        ({"lora_task_id": 3}, "'lora_task_id' is not supported"),
        ({"input_lengths": 9}, "'input_lengths' must be 1 to 2"),
        ({"input_lengths": 0}, "'input_lengths' must be 1 to 2"),
        ({"input_ids": np.array([-1, 3], np.int32)}, "none below 0"),
        ({"request_output_len": 0}, "'request_output_len' must be at least 1"),
        (
            {"request_output_len": 10**9},
            "'request_output_len' must be at most 16777216, not 1000000000",
        ),
        ({"beam_width": 10**6}, "'beam_width' must be at most 2048"),
        ({"beam_width": 2, "num_return_sequences": 3}, "must be at most the beam_width 2"),
        ({"guided_decoding_guide_type": "xml"}, "'guided_decoding_guide_type' must be one of"),
        ({"guided_decoding_guide_type": "regex"}, "'guided_decoding_guide' is needed"),
        (
            {
                "guided_decoding_guide_type": "regex",
                "guided_decoding_guide": "((a{1,99}){1,99}){1,99}",
            },
            "input 'guided_decoding_guide' has a regex whose counted repetitions",
        ),
        ({"input_ids": np.zeros(3000, np.int32), "input_lengths": 3000}, "the context has 2048"),
        ({"input_ids": np.array([[5], [6]], np.int32), "input_lengths": 1}, "must hold one prompt"),
        ({"stop_words_list": np.array([1, 2], np.int32)}, "must have two rows"),
        ({"stop_words_list": np.array([[1, 2], [2, 1]], np.int32)}, "not in order"),
        ({"stop_words_list": np.array([[1, 2], [1, 3]], np.int32)}, "not in order"),
    ],
)
async def test_tokens_that_cannot_be_served_are_refused(
    model: RunningInstance, given: dict[str, Any], message: str
) -> None:
    before = len(llm(model).requests)
    with pytest.raises(InvalidRequestError) as refused:
        await tokens(model, **prompt(5, 6) | inputs(**given))
    assert message in refused.value.message
    assert len(llm(model).requests) == before


@pytest.mark.contract("TL-34")
async def test_parameters_without_effect_are_named(
    version: WriteModel, caplog: pytest.LogCaptureFixture
) -> None:
    given = {
        "decoding_mode": "medusa",
        "max_queue_size": "5",
        "lora_cache_gpu_memory_fraction": "${lora_cache_gpu_memory_fraction}",
        "max_beam_width": "4",
        "exclude_input_in_output": "true",
        "penstock.stream_interval_ms": "0",
        "xgrammar_tokenizer_info_path": "",
    }
    parameters = {name: Parameter(value) for name, value in given.items()}
    config = ModelConfig(name="tensorrt_llm", parameters=parameters)
    async with running(TensorRtLlmTokensBackend, config, version()):
        pass
    assert [one.getMessage() for one in caplog.records if "no effect" in one.getMessage()] == [
        "parameters of 'tensorrt_llm' that have no effect here: decoding_mode, max_queue_size"
    ]


@pytest.mark.contract("TL-34", "TL-15", "TL-16", "TL-19")
async def test_parameters_become_arguments(version: WriteModel) -> None:
    given = {
        "max_beam_width": "4",
        "kv_cache_free_gpu_mem_fraction": "0.5",
        "enable_kv_cache_reuse": "true",
        "max_tokens_in_paged_kv_cache": "4096",
        "iter_stats_max_iterations": "${iterations}",
        "enable_chunked_context": "1",
        "batch_scheduler_policy": "max_utilization",
        "kv_cache_host_memory_bytes": "1000",
        "max_attention_window_size": "64,128",
        "sink_token_length": "4",
        "gpt_model_type": "inflight_fused_batching",
        "guided_decoding_backend": "",
    }
    parameters = {name: Parameter(value) for name, value in given.items()}
    config = ModelConfig(name="tensorrt_llm", parameters=parameters)
    folder = version(YAML + "kv_cache_config: {free_gpu_memory_fraction: 0.25}\n")
    async with running(TensorRtLlmTokensBackend, config, folder) as instance:
        arguments = llm(instance).arguments
    assert arguments["max_beam_width"] == 4
    assert arguments["kv_cache_config"] == {
        "free_gpu_memory_fraction": 0.25,
        "max_tokens": 4096,
        "enable_block_reuse": True,
        "host_cache_size": 1000,
        "max_attention_window": [64, 128],
        "sink_token_length": 4,
    }
    assert arguments["iter_stats_max_iterations"] != "${iterations}"
    assert arguments["enable_chunked_prefill"] is True
    assert arguments["scheduler_config"] == {"capacity_scheduler_policy": "MAX_UTILIZATION"}


@pytest.mark.contract("TL-15")
@pytest.mark.parametrize(
    ("given", "policy"),
    [
        ({}, None),  # the library's own: GUARANTEED_NO_EVICT
        ({"batch_scheduler_policy": "guaranteed_no_evict"}, "GUARANTEED_NO_EVICT"),
        ({"batch_scheduler_policy": "max_utilization"}, "MAX_UTILIZATION"),
        ({"gpt_model_type": "inflight_fused_batching"}, None),
    ],
)
async def test_policy_of_the_scheduler_is_that_of_the_parameter(
    version: WriteModel, given: dict[str, str], policy: str | None
) -> None:
    parameters = {name: Parameter(value) for name, value in given.items()}
    config = ModelConfig(name="tensorrt_llm", parameters=parameters)
    async with running(TensorRtLlmTokensBackend, config, version()) as instance:
        found = llm(instance).arguments["scheduler_config"]
    assert found == (policy and {"capacity_scheduler_policy": policy})


@pytest.mark.contract("TL-15")
async def test_batches_that_are_not_in_flight_are_refused(version: WriteModel) -> None:
    config = ModelConfig(name="m", parameters={"gpt_model_type": Parameter("V1")})
    opening = running(TensorRtLlmTokensBackend, config, version())
    with pytest.raises(ModelLoadError, match="must be 'inflight_fused_batching', not 'V1'"):
        await opening.__aenter__()


@pytest.mark.contract("TL-21")
@pytest.mark.parametrize(
    ("kind", "guide", "field", "value"),
    [
        ("json", "", "json_object", True),
        ("json_schema", "{}", "json", "{}"),
        ("regex", "a+", "regex", "a+"),
        ("ebnf_grammar", 'root ::= "a"', "grammar", 'root ::= "a"'),
        ("structural_tag", "{}", "structural_tag", "{}"),
    ],
)
async def test_guides_reach_the_engine(
    version: WriteModel, kind: str, guide: str, field: str, value: Any
) -> None:
    parameters = {"guided_decoding_backend": Parameter("xgrammar")}
    config = ModelConfig(name="tensorrt_llm", parameters=parameters)
    async with running(TensorRtLlmTokensBackend, config, version()) as instance:
        given = {"guided_decoding_guide_type": kind, "guided_decoding_guide": guide}
        await tokens(instance, **prompt(5, length=1), **given)
        assert llm(instance).arguments["guided_decoding_backend"] == "xgrammar"
        assert getattr(llm(instance).sampling.guided_decoding, field) == value


@pytest.mark.contract("R-21")
async def test_an_engine_of_the_parameters_runs_where_the_release_still_does(
    tmp_path: Path, release: str
) -> None:
    folder = tmp_path / "engine"
    folder.mkdir()
    (folder / "rank0.engine").touch()
    (tmp_path / "1").mkdir()
    parameters = {"gpt_model_path": Parameter(str(folder))}
    config = ModelConfig(name="tensorrt_llm", parameters=parameters)
    opening = running(TensorRtLlmTokensBackend, config, tmp_path / "1")
    if release == "1.2":
        async with opening as instance:
            assert llm(instance).arguments["model"] == str(folder)
            assert llm(instance).arguments["skip_tokenizer_init"] is True
            (response,) = await tokens(instance, **prompt(5, length=1))
            assert ids(response) == [[5, 1000]]
    else:
        with pytest.raises(ModelLoadError, match="no longer runs TensorRT engines"):
            await opening.__aenter__()


async def test_a_model_without_settings_says_what_is_missing(tmp_path: Path) -> None:
    opening = running(TensorRtLlmTokensBackend, ModelConfig(name="tensorrt_llm"), tmp_path)
    with pytest.raises(ModelLoadError, match=r"'model\.yaml' .* and no parameter 'gpt_model_path'"):
        await opening.__aenter__()
