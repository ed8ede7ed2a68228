"""Steps before and behind the engine with all tensors that Triton's own steps have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tritonclient.grpc import InferenceServerClient, InferInput, InferRequestedOutput

from backends.tensorrt_llm.conftest import PACKAGE, YAML
from backends.tensorrt_llm.test_served import Stream
from backends.tensorrt_llm.test_served_layout import write
from harness.serving import Served, serving

pytestmark = pytest.mark.slow

_STRINGS = ("BAD_WORDS_DICT", "STOP_WORDS_DICT", "EMBEDDING_BIAS_WORDS", "IMAGE_URL")
_NUMBERS = ("END_ID", "PAD_ID")
_WORDS = ("BAD_WORDS_IDS", "STOP_WORDS_IDS")


def _tensor(kind: str, name: str, datatype: str, dims: str, *, optional: bool = False) -> str:
    more = " optional: true" if optional else ""
    return f'{kind} {{ name: "{name}" data_type: TYPE_{datatype} dims: [ {dims} ]{more} }}\n'


def _given(name: str, datatype: str, dims: str) -> str:
    return _tensor("input", name, datatype, dims, optional=True)


_PREPROCESSING = "".join(
    (
        'backend: "python"\nmax_batch_size: 8\n',
        _tensor("input", "QUERY", "STRING", "1"),
        _tensor("input", "REQUEST_OUTPUT_LEN", "INT32", "1"),
        _given("DECODER_QUERY", "STRING", "1"),
        *(_given(name, "STRING", "-1") for name in _STRINGS),
        _given("EMBEDDING_BIAS_WEIGHTS", "FP32", "-1"),
        *(_given(name, "INT32", "1") for name in _NUMBERS),
        _given("PROMPT_LEARNING_TASK_NAME", "STRING", "1"),
        _given("IMAGE_BYTES", "UINT8", "-1, -1, -1, -1"),
        _given("VIDEO_BYTES", "UINT8", "-1, -1, -1, -1"),
        _tensor("output", "INPUT_ID", "INT32", "-1"),
        _tensor("output", "REQUEST_INPUT_LEN", "INT32", "1"),
        *(_tensor("output", name, "INT32", "2, -1") for name in _WORDS),
        _tensor("output", "EMBEDDING_BIAS", "FP32", "-1"),
        _tensor("output", "REQUEST_OUTPUT_LEN", "INT32", "1"),
        *(_tensor("output", f"OUT_{name}", "INT32", "1") for name in _NUMBERS),
        'parameters { key: "tokenizer_dir" value { string_value: "/tokens" } }\n',
    )
)
_ENGINE = "".join(
    (
        'backend: "tensorrtllm"\nmax_batch_size: 8\n',
        _tensor("input", "input_ids", "INT32", "-1"),
        _tensor("input", "input_lengths", "INT32", "1"),
        _tensor("input", "request_output_len", "INT32", "1"),
        *(_given(name, "INT32", "1") for name in ("end_id", "pad_id")),
        *(_given(name, "INT32", "2, -1") for name in ("bad_words_list", "stop_words_list")),
        _given("return_log_probs", "BOOL", "1"),
        _tensor("output", "output_ids", "INT32", "-1, -1"),
        _tensor("output", "sequence_length", "INT32", "-1"),
        _tensor("output", "cum_log_probs", "FP32", "-1"),
        _tensor("output", "output_log_probs", "FP32", "-1, -1"),
        'parameters { key: "exclude_input_in_output" value { string_value: "true" } }\n',
    )
)
_QUEUE = """
model_transaction_policy { decoupled: true }
dynamic_batching {
  preferred_batch_size: [ 8 ]
  max_queue_delay_microseconds: 200000000
  default_queue_policy { max_queue_size: 2 }
}
"""
_POSTPROCESSING = "".join(
    (
        'backend: "python"\nmax_batch_size: 8\n',
        _tensor("input", "TOKENS_BATCH", "INT32", "-1, -1"),
        _tensor("input", "SEQUENCE_LENGTH", "INT32", "-1"),
        _given("CUM_LOG_PROBS", "FP32", "-1"),
        _given("OUTPUT_LOG_PROBS", "FP32", "-1, -1"),
        _tensor("output", "OUTPUT", "STRING", "-1"),
        _tensor("output", "OUT_CUM_LOG_PROBS", "FP32", "-1"),
        _tensor("output", "OUT_OUTPUT_LOG_PROBS", "FP32", "-1, -1"),
        'parameters { key: "tokenizer_dir" value { string_value: "/tokens" } }\n'
        'parameters { key: "skip_special_tokens" value { string_value: "True" } }\n',
    )
)
_HEAD = """
import json
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        given = json.loads(args["model_config"])["parameters"]
        self.given = {name: value["string_value"] for name, value in given.items()}
        assert self.given["tokenizer_dir"] == "/tokens"

    def execute(self, requests):
        return [pb_utils.InferenceResponse(self.outputs(request)) for request in requests]

    def get(self, request, name):
        tensor = pb_utils.get_input_tensor_by_name(request, name)
        return None if tensor is None else tensor.as_numpy()
"""
_TOKENISE = (
    _HEAD
    + """
    def words(self, texts):
        # Tokens of all words in the first row, the end of each in the second.
        flat, ends = [], []
        for text in [] if texts is None else texts.ravel():
            flat += map(int, text.decode().split())
            ends.append(len(flat))
        rows = np.full((1, 2, max(len(flat), 1)), -1, np.int32)
        rows[0, 0, :] = flat or [0]
        rows[0, 1, : len(ends)] = ends
        return rows

    def outputs(self, request):
        ids = [int(word) for word in self.get(request, "QUERY")[0, 0].split()]
        weights = self.get(request, "EMBEDDING_BIAS_WEIGHTS")
        made = {
            "INPUT_ID": np.array([ids], np.int32),
            "REQUEST_INPUT_LEN": np.array([[len(ids)]], np.int32),
            "REQUEST_OUTPUT_LEN": self.get(request, "REQUEST_OUTPUT_LEN"),
            "BAD_WORDS_IDS": self.words(self.get(request, "BAD_WORDS_DICT")),
            "STOP_WORDS_IDS": self.words(self.get(request, "STOP_WORDS_DICT")),
            "EMBEDDING_BIAS": np.zeros((1, 4), np.float32) if weights is None else weights,
            "OUT_END_ID": self.get(request, "END_ID"),
            "OUT_PAD_ID": self.get(request, "PAD_ID"),
        }
        return [pb_utils.Tensor(name, value) for name, value in made.items()]
"""
)
_DETOKENISE = (
    _HEAD
    + """
    def outputs(self, request):
        end = "" if self.given["skip_special_tokens"] == "True" else " <end>"
        rows = self.get(request, "TOKENS_BATCH")[0]
        lengths = self.get(request, "SEQUENCE_LENGTH")[0]
        texts = ["".join(f" <{i}>" for i in r[:n]) + end for r, n in zip(rows, lengths)]
        made = {"OUTPUT": np.array([[text.encode() for text in texts]], np.object_)}
        for name in ("CUM_LOG_PROBS", "OUTPUT_LOG_PROBS"):
            if (passed := self.get(request, name)) is not None:
                made[f"OUT_{name}"] = passed
        return [pb_utils.Tensor(name, value) for name, value in made.items()]
"""
)


def _step(model: str, inputs: dict[str, str], outputs: dict[str, str]) -> str:
    maps = [f'input_map {{ key: "{key}" value: "{of}" }}' for key, of in inputs.items()]
    maps += [f'output_map {{ key: "{key}" value: "{of}" }}' for key, of in outputs.items()]
    return f'step {{ model_name: "{model}" model_version: -1\n' + "\n".join(maps) + "\n}\n"


_ENSEMBLE = "".join(
    (
        'platform: "ensemble"\nmax_batch_size: 8\n',
        _tensor("input", "text_input", "STRING", "1"),
        _tensor("input", "max_tokens", "INT32", "1"),
        _given("bad_words", "STRING", "-1"),
        _given("stop_words", "STRING", "-1"),
        _tensor("input", "end_id", "INT32", "1"),
        _tensor("input", "pad_id", "INT32", "1"),
        _given("return_log_probs", "BOOL", "1"),
        _tensor("output", "text_output", "STRING", "-1"),
        _tensor("output", "cum_log_probs", "FP32", "-1"),
        _tensor("output", "output_log_probs", "FP32", "-1, -1"),
        "ensemble_scheduling {\n",
        _step(
            "preprocessing",
            {
                "QUERY": "text_input",
                "REQUEST_OUTPUT_LEN": "max_tokens",
                "BAD_WORDS_DICT": "bad_words",
                "STOP_WORDS_DICT": "stop_words",
                "END_ID": "end_id",
                "PAD_ID": "pad_id",
            },
            {
                "INPUT_ID": "_INPUT_ID",
                "REQUEST_INPUT_LEN": "_REQUEST_INPUT_LEN",
                "REQUEST_OUTPUT_LEN": "_REQUEST_OUTPUT_LEN",
                "BAD_WORDS_IDS": "_BAD_WORDS_IDS",
                "STOP_WORDS_IDS": "_STOP_WORDS_IDS",
                "OUT_END_ID": "_END_ID",
                "OUT_PAD_ID": "_PAD_ID",
            },
        ),
        _step(
            "tensorrt_llm",
            {
                "input_ids": "_INPUT_ID",
                "input_lengths": "_REQUEST_INPUT_LEN",
                "request_output_len": "_REQUEST_OUTPUT_LEN",
                "bad_words_list": "_BAD_WORDS_IDS",
                "stop_words_list": "_STOP_WORDS_IDS",
                "end_id": "_END_ID",
                "pad_id": "_PAD_ID",
                "return_log_probs": "return_log_probs",
            },
            {
                "output_ids": "_TOKENS_BATCH",
                "sequence_length": "_SEQUENCE_LENGTH",
                "cum_log_probs": "_CUM_LOG_PROBS",
                "output_log_probs": "_OUTPUT_LOG_PROBS",
            },
        ),
        _step(
            "postprocessing",
            {
                "TOKENS_BATCH": "_TOKENS_BATCH",
                "SEQUENCE_LENGTH": "_SEQUENCE_LENGTH",
                "CUM_LOG_PROBS": "_CUM_LOG_PROBS",
                "OUTPUT_LOG_PROBS": "_OUTPUT_LOG_PROBS",
            },
            {
                "OUTPUT": "text_output",
                "OUT_CUM_LOG_PROBS": "cum_log_probs",
                "OUT_OUTPUT_LOG_PROBS": "output_log_probs",
            },
        ),
        "}\n",
    )
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    repository = tmp_path_factory.mktemp("steps")
    write(repository, "preprocessing", _PREPROCESSING, model_py=_TOKENISE)
    write(repository, "tensorrt_llm", _ENGINE, model_yaml=YAML.replace("true", "false"))
    write(repository, "postprocessing", _POSTPROCESSING, model_py=_DETOKENISE)
    write(repository, "ensemble", _ENSEMBLE)
    write(repository, "queued", _ENGINE + _QUEUE, model_yaml=YAML)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(PACKAGE))
        with serving(repository, repository.with_suffix(".log")) as served:
            yield served


def _asked(client: InferenceServerClient, model: str, **given: Any) -> Any:
    kinds = {"O": "BYTES", "b": "BOOL", "i": "INT32", "f": "FP32"}
    inputs = []
    for name, value in given.items():
        array = np.array([value], np.object_ if isinstance(value[0], bytes) else None)
        array = array.astype(np.int32) if array.dtype.kind == "i" else array
        tensor = InferInput(name, list(array.shape), kinds[array.dtype.kind])
        inputs.append(tensor.set_data_from_numpy(array))
    wanted = [InferRequestedOutput("text_output")] if "stop_words" in given else None
    return client.infer(model, inputs, outputs=wanted)


_PROMPT = {"text_input": [b"5 6"], "max_tokens": [20], "end_id": [2], "pad_id": [0]}


@pytest.mark.contract("TL-09")
def test_the_steps_before_make_tensors_of_the_engine(client: InferenceServerClient) -> None:
    query = {
        "QUERY": [b"5 6 7"],
        "REQUEST_OUTPUT_LEN": [3],
        "BAD_WORDS_DICT": [b"8", b"9 10"],
        "STOP_WORDS_DICT": [b"11"],
        "EMBEDDING_BIAS_WORDS": [b"x"],
        "EMBEDDING_BIAS_WEIGHTS": np.array([0.5], np.float32),
        "END_ID": [2],
        "PAD_ID": [0],
        "DECODER_QUERY": [b""],
        "IMAGE_URL": [b"data:,"],
        "PROMPT_LEARNING_TASK_NAME": [b"task"],
    }
    made = _asked(client, "preprocessing", **query)
    assert made.as_numpy("INPUT_ID").tolist() == [[5, 6, 7]]
    assert made.as_numpy("REQUEST_INPUT_LEN").tolist() == [[3]]
    assert made.as_numpy("BAD_WORDS_IDS").tolist() == [[[8, 9, 10], [1, 3, -1]]]
    assert made.as_numpy("STOP_WORDS_IDS").tolist() == [[[11], [1]]]
    assert made.as_numpy("EMBEDDING_BIAS").tolist() == [[0.5]]
    ends = [made.as_numpy(f"OUT_{name}").tolist() for name in _NUMBERS]
    assert ends == [[[2]], [[0]]]


@pytest.mark.contract("TL-09", "TL-13", "R-21")
def test_words_of_the_first_step_stop_the_engine_s(client: InferenceServerClient) -> None:
    answer = _asked(client, "ensemble", **_PROMPT, stop_words=[b"1001 1002"], bad_words=[b"7"])
    assert answer.as_numpy("text_output").tolist() == [[b" <1000> <1001> <1002>"]]


@pytest.mark.contract("TL-13")
def test_the_last_step_makes_the_text_and_passes_log_probabilities_on(
    client: InferenceServerClient,
) -> None:
    answer = _asked(client, "ensemble", **{**_PROMPT, "max_tokens": [2]}, return_log_probs=[True])
    assert answer.as_numpy("text_output").tolist() == [[b" <1000> <1001>"]]
    assert answer.as_numpy("cum_log_probs").tolist() == [[-1.0]]
    assert answer.as_numpy("output_log_probs").tolist() == [[[-0.5, -0.5]]]


@pytest.mark.contract("TL-20")
def test_queue_options_are_those_of_the_configuration(server: Served) -> None:
    """Two requests wait for a batch of eight, a third finds the queue full."""
    given = {"input_ids": [5, 6], "input_lengths": [2], "request_output_len": [3]}
    inputs = [
        InferInput(name, [1, len(values)], "INT32").set_data_from_numpy(
            np.array([values], np.int32)
        )
        for name, values in given.items()
    ]
    with InferenceServerClient(server.grpc) as client:
        config = client.get_model_config("queued").config
        assert (config.max_batch_size, config.model_transaction_policy.decoupled) == (8, True)
        stream = Stream(client)
        for _ in range(3):
            client.async_stream_infer("queued", inputs)
        _, error = stream.next()
        assert "Exceeds maximum queue size" in str(error)
        client.stop_stream(cancel_requests=True)
