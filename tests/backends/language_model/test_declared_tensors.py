"""A configuration gets the tensors it does not name itself."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.core.config import ModelConfig, ModelInput, TransactionPolicy
from penstock.core.errors import ConfigError, InvalidRequestError
from penstock.core.request import InferenceRequest
from penstock.core.tensor import DataType, Tensor
from penstock.models.serving.admission import Admission
from penstock_backends.language_model import check_decoupled, complete_tensors


@pytest.mark.contract("AC-10")
def test_an_empty_configuration_gets_every_tensor() -> None:
    config = complete_tensors(ModelConfig(name="m"))
    assert [tensor.name for tensor in config.input] == [
        "text_input",
        "input_ids",
        "stream",
        "sampling_parameters",
        "exclude_input_in_output",
        "return_finish_reason",
        "return_cumulative_logprob",
        "return_logprobs",
        "return_num_input_tokens",
        "return_num_output_tokens",
        "return_token_ids",
        "return_stop_reason",
    ]
    assert [tensor.name for tensor in config.output] == [
        "text_output",
        "finish_reason",
        "cumulative_logprob",
        "logprobs",
        "num_input_tokens",
        "num_output_tokens",
        "token_ids",
        "stop_reason",
    ]
    assert config.decoupled


@pytest.mark.contract("VL-04", "VL-06", "VL-07", "VL-08", "VL-09")
def test_every_input_may_be_left_out_since_there_are_two_for_the_prompt() -> None:
    config = complete_tensors(ModelConfig())
    assert [tensor.name for tensor in config.input if not tensor.optional] == []


@pytest.mark.contract("AC-10", "C-44")
def test_given_inputs_are_kept() -> None:
    stream = ModelInput(name="stream", data_type=DataType.BOOL, dims=(1,))
    config = complete_tensors(ModelConfig(input=(stream,)))
    assert config.input[0] is stream
    assert [tensor.name for tensor in config.input].count("stream") == 1


@pytest.mark.contract("C-44")
def test_a_stream_that_is_declared_without_optional_has_to_be_sent() -> None:
    """As configurations of old documents declare it."""
    declared = (
        ModelInput("text_input", DataType.BYTES, dims=(1,)),
        ModelInput("stream", DataType.BOOL, dims=(1,)),
    )
    admission = Admission(complete_tensors(ModelConfig("m", input=declared)))
    text = {"text_input": Tensor.from_strings(["hello"])}
    with pytest.raises(InvalidRequestError, match=r"missing required input\(s\) \['stream'\]"):
        admission.check(InferenceRequest("m", inputs=text))
    stream = {"stream": Tensor.from_numpy(np.array([False]))}
    assert admission.check(InferenceRequest("m", inputs=text | stream)) == 1
    by_itself = Admission(complete_tensors(ModelConfig("m")))
    assert by_itself.check(InferenceRequest("m", inputs=text)) == 1


def test_completing_twice_changes_nothing() -> None:
    once = complete_tensors(ModelConfig(name="m"))
    assert complete_tensors(once) == once


@pytest.mark.contract("VL-02")
def test_the_decoupled_policy_is_mandatory() -> None:
    config = complete_tensors(ModelConfig(model_transaction_policy=TransactionPolicy(False)))
    with pytest.raises(ConfigError) as refused:
        check_decoupled(config, "vLLM Triton")
    assert refused.value.message == (
        "vLLM Triton backend must be configured to use decoupled model transaction policy"
    )


@pytest.mark.contract("VL-03")
def test_the_server_must_not_batch() -> None:
    with pytest.raises(ConfigError, match="max_batch_size must be 0, not 8"):
        check_decoupled(complete_tensors(ModelConfig(max_batch_size=8)), "toy")
