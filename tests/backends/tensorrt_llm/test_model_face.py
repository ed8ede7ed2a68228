"""The tensors of `ensemble` and `tensorrt_llm_bls` over any language model."""

from __future__ import annotations

import json
import queue
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import np_to_triton_dtype

from harness.serving import Served, serving
from penstock.core.backend import InstanceContext
from penstock.core.config import ModelConfig, Parameter, TransactionPolicy
from penstock.core.errors import (
    ConfigError,
    InferenceError,
    InternalError,
    InvalidRequestError,
    ModelLoadError,
    NotFoundError,
    RequestCancelledError,
)
from penstock.core.request import InferenceRequest, InferenceResponse, RequestScope
from penstock.core.stream import ResponseStream
from penstock.core.tensor import Tensor
from penstock.model import Value, as_tensor
from penstock.testing import RunningInstance, running
from penstock_backends.tensorrt_llm import TensorRtLlmFaceBackend

Answer = Callable[[InferenceRequest, ResponseStream], None]


def config(*, decoupled: bool = True, batch: int = 0, **parameters: str) -> ModelConfig:
    given = {"tensorrt_llm_model_name": "llm", **parameters}
    return ModelConfig(
        name="ensemble",
        backend="tensorrt_llm_face",
        max_batch_size=batch,
        model_transaction_policy=TransactionPolicy(decoupled),
        parameters={name: Parameter(value) for name, value in given.items()},
    )


class Model:
    """A language model that answers as a test says; `asked` are the requests to it."""

    def __init__(self, answer: Answer) -> None:
        self.asked: list[InferenceRequest] = []
        self.streams: list[ResponseStream] = []
        self._answer = answer

    def infer(self, request: InferenceRequest) -> ResponseStream:
        stream = ResponseStream()
        self.asked.append(request)
        self.streams.append(stream)
        self._answer(request, stream)
        return stream

    @property
    def sampling(self) -> dict[str, Any]:
        text = self.asked[-1].inputs["sampling_parameters"].elements()[0]
        found: dict[str, Any] = json.loads(text)
        return found


def saying(*pieces: str, **outputs: Tensor) -> Answer:
    """Sends each piece, and the outputs with the last."""

    def answer(_: InferenceRequest, stream: ResponseStream) -> None:
        for number, piece in enumerate(pieces):
            last = number == len(pieces) - 1
            tensors = {"text_output": Tensor.from_strings([piece]), **(outputs if last else {})}
            stream.send(InferenceResponse(tensors, final=last))

    return answer


@asynccontextmanager
async def face(model: Model, given: ModelConfig, path: Path) -> AsyncIterator[RunningInstance]:
    completed = await TensorRtLlmFaceBackend.complete_config(given, path, {})
    TensorRtLlmFaceBackend.check_config(completed)

    async def run(*_: Any) -> Any:
        raise AssertionError("it needs no thread")

    backend = TensorRtLlmFaceBackend()
    await backend.initialize(InstanceContext("e_0", completed, 1, path, run, infer=model.infer))
    yield RunningInstance(backend, completed)


def request(**inputs: Value) -> dict[str, Value]:
    return {"text_input": "Say", "max_tokens": np.array([5], np.int32), **inputs}


async def answers(instance: RunningInstance, **inputs: Value) -> list[InferenceResponse]:
    return [one async for one in instance.infer(request(**inputs))]


def texts(responses: list[InferenceResponse]) -> list[bytes]:
    return [one.outputs["text_output"].elements()[0] for one in responses]


@pytest.mark.contract("TL-14")
async def test_whole_answer_has_the_prompt_unless_it_is_excluded(tmp_path: Path) -> None:
    model = Model(saying(" hello"))
    async with face(model, config(), tmp_path) as instance:
        assert texts(await answers(instance)) == [b"Say hello"]
        excluded = await answers(instance, exclude_input_in_output=np.array([True]))
        assert texts(excluded) == [b" hello"]
    asked = model.asked[0].inputs
    assert asked["text_input"].elements() == [b"Say"]
    assert bool(asked["exclude_input_in_output"].numpy()[0])
    assert model.sampling == {"max_tokens": 5, "temperature": 0.0}


@pytest.mark.parametrize(
    ("accumulate", "found"),
    [("", [b"a", b"b", b"c"]), ("true", [b"a", b"ab", b"abc"]), ("${unset}", [b"a", b"b", b"c"])],
)
async def test_stream_has_new_text_or_all_of_it(
    tmp_path: Path, accumulate: str, found: list[bytes]
) -> None:
    given = config(accumulate_tokens=accumulate)
    async with face(Model(saying("a", "b", "c")), given, tmp_path) as instance:
        responses = await answers(instance, stream=np.array([True]))
    assert texts(responses) == found
    assert [one.final for one in responses] == [False, False, True]


async def test_sampling_has_the_names_of_the_language_model(tmp_path: Path) -> None:
    model = Model(saying("x"))
    async with face(model, config(), tmp_path) as instance:
        await answers(
            instance,
            stop_words=["", "end"],
            bad_words=["bad"],
            end_id=np.array([2], np.int32),
            pad_id=np.array([0], np.int32),
            top_k=np.array([7], np.int32),
            top_p=np.array([0.5], np.float32),
            temperature=np.array([0.0], np.float32),
            repetition_penalty=np.array([1.5], np.float32),
            seed=np.array([3], np.uint64),
            num_return_sequences=np.array([1], np.int32),
            length_penalty=np.array([2.0], np.float32),
            guided_decoding_guide_type="regex",
            guided_decoding_guide="[ab]+",
        )
    assert model.sampling == {
        "max_tokens": 5,
        "stop": ["end"],
        "bad_words": ["bad"],
        "stop_token_ids": [2],
        "top_k": 7,
        "top_p": 0.5,
        "temperature": 0.0,
        "repetition_penalty": 1.5,
        "seed": 3,
        "structured_outputs": {"regex": "[ab]+"},
    }


@pytest.mark.contract("GP2-08")
@pytest.mark.parametrize("name", ["min_tokens", "min_length"])
async def test_the_least_number_of_tokens_has_a_former_name(tmp_path: Path, name: str) -> None:
    model = Model(saying("x"))
    async with face(model, config(), tmp_path) as instance:
        await answers(instance, **{name: np.array([3], np.int32)})
    assert model.sampling["min_tokens"] == 3


async def test_no_end_token_goes_on_behind_the_end(tmp_path: Path) -> None:
    model = Model(saying("x"))
    async with face(model, config(), tmp_path) as instance:
        await answers(instance, end_id=np.array([-1], np.int32))
    assert model.sampling["ignore_eos"] is True


async def test_log_probabilities_and_counts(tmp_path: Path) -> None:
    places = [{"5": {"logprob": -0.5}, "6": {"logprob": -1.5}}, {"7": {"logprob": -0.25}}]
    model = Model(
        saying(
            "x",
            logprobs=Tensor.from_strings([json.dumps(places)]),
            cumulative_logprob=Tensor.from_numpy(np.array([-0.75], np.float32)),
            num_output_tokens=Tensor.from_numpy(np.array([2], np.uint32)),
            num_input_tokens=Tensor.from_numpy(np.array([4], np.uint32)),
        )
    )
    async with face(model, config(), tmp_path) as instance:
        [found] = await answers(
            instance,
            return_log_probs=np.array([True]),
            return_num_input_tokens=np.array([True]),
            return_num_output_tokens=np.array([True]),
        )
    assert found.outputs["cum_log_probs"].numpy().tolist() == [-0.75]
    assert found.outputs["output_log_probs"].numpy().tolist() == [[-0.5, -0.25]]
    assert found.outputs["num_output_tokens"].numpy().tolist() == [2]
    assert found.outputs["num_input_tokens"].numpy().tolist() == [4]
    assert model.sampling["logprobs"] == 1


async def test_model_that_batches_has_a_dimension_more(tmp_path: Path) -> None:
    async with face(Model(saying("x")), config(batch=4), tmp_path) as instance:
        given = {
            "text_input": np.array([[b"Say"]], object),
            "max_tokens": np.array([[5]], np.int32),
        }
        [found] = [one async for one in instance.infer(given)]
    assert found.outputs["text_output"].shape == (1, 1)


@pytest.mark.parametrize(
    ("inputs", "told"),
    [
        ({"beam_width": np.array([3], np.int32)}, "'beam_width' is not supported"),
        ({"top_p_min": np.array([0.5], np.float32)}, "'top_p_min' is not supported"),
        ({"return_context_logits": np.array([True])}, "'return_context_logits' is not supported"),
        ({"max_tokens": np.array([0], np.int32)}, "'max_tokens' must be at least 1"),
        ({"text_input": ""}, "the prompt is empty"),
        ({"stop": np.array([True])}, "A request id must be provided"),
    ],
)
async def test_what_cannot_be_done_is_named(
    tmp_path: Path, inputs: dict[str, Value], told: str
) -> None:
    model = Model(saying("x"))
    async with face(model, config(), tmp_path) as instance:
        with pytest.raises(InvalidRequestError, match=told):
            await answers(instance, **inputs)
    assert model.asked == []


async def test_streams_need_a_decoupled_model(tmp_path: Path) -> None:
    async with face(Model(saying("x")), config(decoupled=False), tmp_path) as instance:
        with pytest.raises(InvalidRequestError, match="only supported in decoupled mode"):
            await answers(instance, stream=np.array([True]))


def failing(_: InferenceRequest, stream: ResponseStream) -> None:
    stream.send(InferenceResponse({"text_output": Tensor.from_strings(["a"])}))
    stream.fail(NotFoundError("gone"))


async def test_failure_of_the_model_is_its_own(tmp_path: Path) -> None:
    async with face(Model(failing), config(), tmp_path) as instance:
        responses = instance.infer(request(stream=np.array([True])))
        await anext(responses)
        with pytest.raises(NotFoundError, match="gone"):
            await anext(responses)


@pytest.mark.parametrize(
    "outputs",
    [{"other": Tensor.from_strings(["x"])}, {"text_output": Tensor.from_strings(["x", "y"])}],
)
async def test_answers_of_another_form_are_refused(tmp_path: Path, outputs: Any) -> None:
    def odd(_: InferenceRequest, stream: ResponseStream) -> None:
        stream.send(InferenceResponse({"text_output": Tensor.from_strings(["a"])}))
        stream.send(InferenceResponse(outputs, final=True))

    async with face(Model(odd), config(), tmp_path) as instance:
        with pytest.raises(InternalError, match="language model has answered with"):
            await answers(instance, stream=np.array([True]))


def waiting(_: InferenceRequest, stream: ResponseStream) -> None:
    stream.send(InferenceResponse({"text_output": Tensor.from_strings(["a"])}))


@pytest.mark.contract("TL-23")
async def test_request_to_stop_ends_those_of_its_id(tmp_path: Path) -> None:
    model = Model(waiting)
    async with face(model, config(), tmp_path) as instance:
        responses = instance.infer(request(stream=np.array([True])), id="mine")
        await anext(responses)
        for name in ("other", "mine"):
            with pytest.raises(RequestCancelledError, match="cancelled by client"):
                await anext(instance.infer(request(stop=np.array([True])), id=name))
        with pytest.raises(RequestCancelledError, match="Request cancelled by client"):
            await anext(responses)
    assert model.streams[0].ended


async def test_reader_that_leaves_ends_the_model_s_request(tmp_path: Path) -> None:
    model = Model(waiting)
    async with face(model, config(), tmp_path) as instance:
        responses = instance.infer(request(stream=np.array([True])))
        await anext(responses)
        await responses.aclose()
    assert isinstance(model.streams[0].error, RequestCancelledError)


async def test_deadline_goes_with_the_request(tmp_path: Path) -> None:
    model = Model(saying("x"))
    async with face(model, config(), tmp_path) as instance:
        inputs = {name: as_tensor(value) for name, value in request().items()}
        given = InferenceRequest("ensemble", inputs=inputs, scope=RequestScope(deadline=9.0))
        (outcome,) = await instance.backend.execute([given])
        assert not isinstance(outcome, InferenceError)
    assert model.asked[0].scope.deadline == 9.0


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({"tensorrt_llm_model_name": ""}, "needs the parameter 'tensorrt_llm_model_name'"),
        ({"tensorrt_llm_model_name": "ensemble"}, "cannot be the model itself"),
        ({"tensorrt_llm_draft_model_name": "x"}, "no parameter 'tensorrt_llm_draft_model_name'"),
    ],
)
def test_wrong_parameters_are_named(parameters: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        TensorRtLlmFaceBackend.check_config(config(**parameters))


def test_configuration_is_completed_without_anything_else(tmp_path: Path) -> None:
    assert TensorRtLlmFaceBackend.completes_by_reading(config(), tmp_path)


async def test_without_a_server_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="needs a server"):
        async with running(TensorRtLlmFaceBackend, config(), tmp_path):
            pass


LLM = """\
import json
import numpy as np
from triton_python_backend_utils import InferenceResponse, Tensor, get_input_tensor_by_name

class TritonPythonModel:
    def execute(self, requests):
        return [self._answer(one) for one in requests]

    def _answer(self, request):
        text = get_input_tensor_by_name(request, "text_input").as_numpy()[0]
        given = json.loads(get_input_tensor_by_name(request, "sampling_parameters").as_numpy()[0])
        made = text.upper()[: given["max_tokens"]]
        return InferenceResponse([Tensor("text_output", np.array([made], object))])
"""
LLM_CONFIG = """\
backend: "python"
input [ { name: "text_input" data_type: TYPE_STRING dims: 1 },
        { name: "sampling_parameters" data_type: TYPE_STRING dims: 1 },
        { name: "stream" data_type: TYPE_BOOL dims: 1 optional: true },
        { name: "exclude_input_in_output" data_type: TYPE_BOOL dims: 1 optional: true } ]
output { name: "text_output" data_type: TYPE_STRING dims: 1 }
"""


FACE = """\
backend: "tensorrt_llm_face"
parameters { key: "tensorrt_llm_model_name" value { string_value: "llm" } }
"""
BATCHED = FACE + "max_batch_size: 4\nmodel_transaction_policy { decoupled: true }\n"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("faces")
    models = {"llm": LLM_CONFIG, "ensemble": FACE, "tensorrt_llm_bls": BATCHED}
    for name, text in models.items():
        (folder / "models" / name / "1").mkdir(parents=True)
        (folder / "models" / name / "config.pbtxt").write_text(text)
    (folder / "models" / "llm" / "1" / "model.py").write_text(LLM)
    with serving(folder / "models", folder / "log") as server:
        yield server


@pytest.mark.slow
def test_upstreams_line_for_curl(served: Served) -> None:
    body = {"text_input": "one two", "max_tokens": 3, "bad_words": "", "stop_words": ""}
    answer = httpx.post(f"http://{served.http}/v2/models/ensemble/generate", json=body).json()
    assert answer["text_output"] == "one twoONE"


@pytest.mark.slow
def test_upstreams_client_streams_with_a_batch_dimension(served: Served) -> None:
    """As `end_to_end_grpc_client.py` asks, whose tensors are of shape [1, 1]."""
    values: dict[str, Any] = {
        "text_input": np.array([[b"one two"]], object),
        "max_tokens": np.array([[3]], np.int32),
        "bad_words": np.array([[b""]], object),
        "stop_words": np.array([[b""]], object),
        "stream": np.array([[True]]),
        "beam_width": np.array([[1]], np.int32),
        "temperature": np.array([[1.0]], np.float32),
    }
    inputs = []
    for name, value in values.items():
        datatype = np_to_triton_dtype(value.dtype)
        inputs.append(grpcclient.InferInput(name, value.shape, datatype))
        inputs[-1].set_data_from_numpy(value)
    answers: queue.Queue[Any] = queue.Queue()
    with grpcclient.InferenceServerClient(served.grpc) as client:
        client.start_stream(callback=lambda result, error: answers.put((result, error)))
        client.async_stream_infer("tensorrt_llm_bls", inputs, request_id="1")
        result, error = answers.get(timeout=20)
        client.stop_stream()
    assert error is None
    assert result.as_numpy("text_output").tolist() == [[b"ONE"]]
