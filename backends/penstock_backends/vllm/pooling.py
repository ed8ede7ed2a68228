"""Requests to pooling models: embeddings, classes and scores (VL-12)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from penstock.backend import (
    Array,
    DataType,
    InferenceRequest,
    InferenceResponse,
    InvalidRequestError,
    Tensor,
    suggestion,
)
from penstock_backends.language_model import RUNNING_ERROR, GenerationRequest
from penstock_backends.language_model.parameters import as_boolean, as_integer
from penstock_backends.vllm.engine import VllmEngine
from penstock_backends.vllm.inputs.prompts import ids_prompt, prompt_of, text_prompt
from penstock_backends.vllm.inputs.request_options import RequestOptions
from penstock_backends.vllm.tasks import results_of

EMBEDDING_REQUEST: Final = "embedding_request"
PAIRS: Final = "text_pair"

_MOST_PAIRS: Final = 1024
_TOKEN: Final = 128
"""Characters of the longest token of usual vocabularies."""
_PARAMETERS: Final = ("dimensions", "use_activation")
_GENERATING: Final = ("stream", "sampling_parameters")
"""Inputs that only requests for text have."""
_TASKS: Final = {"EMBEDDING": "embed", "CLASS_PROBS": "classify", "SCORE": "score"}
"""The outputs of pooling models, and what is asked of a model with them."""


@dataclass(frozen=True, slots=True)
class PoolingRequest:
    """A request to a pooling model: `task` on a prompt, or on its pairs with other texts.

    `as_text`: the embedding is a JSON list in `text_output`, as in Triton's vLLM backend.
    """

    task: str
    prompt: dict[str, Any]
    text: str = ""
    pairs: Sequence[str] = ()
    dimensions: int | None = None
    use_activation: bool | None = None
    as_text: bool = False
    count_input: bool = False
    count_output: bool = False

    def params(self, **more: Any) -> Any:
        """vLLM's `PoolingParams`."""
        from vllm.pooling_params import PoolingParams

        return PoolingParams(
            task=self.task,  # type: ignore[arg-type, unused-ignore]
            dimensions=self.dimensions,
            use_activation=self.use_activation,
            **more,
        )


def refusal(model: str, task: str) -> InvalidRequestError:
    """The refusal of a request for a task that the model does not have, in Triton's words."""
    return InvalidRequestError(f"{RUNNING_ERROR}Model {model} does not support '{task}' request")


def asks_for_text(request: InferenceRequest) -> bool:
    """Whether only a model that generates can answer the request."""
    if EMBEDDING_REQUEST in request.inputs:
        return False
    return "text_output" in request.requested_outputs or any(
        name in request.inputs for name in _GENERATING
    )


def refuse_pooling(request: InferenceRequest) -> None:
    """Refuse what a model that generates would leave out of its answer."""
    if PAIRS in request.inputs:
        raise refusal(request.model_name, "score")
    _check_outputs(request, ())


def _check_outputs(request: InferenceRequest, made: Collection[str]) -> None:
    """Refuse a request for nothing but outputs of other tasks than those of outputs `made`."""
    asked = list(request.requested_outputs)
    if asked and all(name in _TASKS and name not in made for name in asked):
        raise refusal(request.model_name, _TASKS[asked[0]])


def read_embedding_request(request: InferenceRequest, engine: VllmEngine) -> PoolingRequest:
    """A request as Triton's OpenAI front end makes it; raises `InvalidRequestError`."""
    given = _json(request)
    pooling = given.get("pooling_params") or {}
    if not isinstance(pooling, dict):
        raise _malformed("'pooling_params' must be an object")
    content = given.get("input")
    if isinstance(content, str):
        prompt = text_prompt(content)
    elif isinstance(content, list) and all(type(token) is int for token in content):
        if any(not -(1 << 63) <= token < 1 << 63 for token in content):
            raise _malformed("'input' holds a number that is no token id")
        prompt = ids_prompt(np.array(content, np.int64), engine.facts)
    else:
        raise _malformed("'input' must be a text or a list of token ids")
    read = {**_counts(request), **_read(pooling)}
    return PoolingRequest("embed", prompt, as_text=True, **read)


def read_pooling_request(
    request: InferenceRequest, generation: GenerationRequest, engine: VllmEngine
) -> PoolingRequest:
    """A request by tensors, for the task of the model; raises `InvalidRequestError`."""
    task = engine.pooling_task
    prompt = prompt_of(generation, engine.facts)
    pairs = _texts(request, PAIRS)
    whole = ("EMBEDDING",) if task == "embed" else ("CLASS_PROBS", "SCORE")
    _check_outputs(request, ("SCORE",) if pairs else whole)
    if pairs and generation.input_ids is not None:
        raise InvalidRequestError(f"input '{PAIRS}' needs the other text in 'text_input'")
    read = {**_counts(request), **_read(generation.parameters or {})}
    return PoolingRequest(task, prompt, generation.prompt, pairs, **read)


async def pooled(
    engine: VllmEngine, request: PoolingRequest, options: RequestOptions
) -> AsyncGenerator[InferenceResponse, None]:
    """The one response of a pooling model."""
    if request.pairs:
        yield await _scored(engine, request, options)
        return
    output = await _result(engine, request.prompt, request.params(), options)
    row = _row(output)
    outputs: dict[str, Tensor] = {}
    if request.as_text:
        outputs["text_output"] = Tensor.from_strings([json.dumps(row.tolist())])
    elif request.task == "embed":
        outputs["EMBEDDING"] = _numbers(row)
    else:
        outputs["CLASS_PROBS"] = _numbers(row)
        if row.size == 1:
            outputs["SCORE"] = _numbers(row)
    if request.count_input:
        outputs["num_input_tokens"] = _count(len(output.prompt_token_ids))
    if request.count_output:
        outputs["num_output_tokens"] = _count(0)
    yield InferenceResponse(outputs, final=True)


async def _scored(
    engine: VllmEngine, request: PoolingRequest, options: RequestOptions
) -> InferenceResponse:
    """The score of each text with the prompt: of embeddings their cosine, else the model's own."""
    cosine = request.task == "embed"
    if cosine:
        prompts = [request.prompt, *map(text_prompt, request.pairs)]
        asked = [(prompt, request.params()) for prompt in prompts]
    else:
        asked = [await _paired(engine, request, text) for text in request.pairs]
    results = await results_of(_result(engine, prompt, params, options) for prompt, params in asked)
    rows = [_row(result) for result in results]
    if cosine:
        one, *others = [row / (np.linalg.norm(row) or 1.0) for row in rows]
        scores = [float(one @ other) for other in others]
    elif rows[0].size != 1:
        raise InvalidRequestError(
            f"input '{PAIRS}' needs a model with one class, and this has {rows[0].size}"
        )
    else:
        scores = [float(row[0]) for row in rows]
    outputs = {"SCORE": _numbers(np.array(scores))}
    if request.count_input:
        outputs["num_input_tokens"] = _count(sum(len(r.prompt_token_ids) for r in results))
    return InferenceResponse(outputs, final=True)


async def _paired(
    engine: VllmEngine, request: PoolingRequest, text: str
) -> tuple[dict[str, Any], Any]:
    """The tokens of both texts, as a cross-encoder reads them; others have their turns between."""
    longest = engine.facts.context_length
    if (size := len(request.text) + len(text)) > longest * _TOKEN:
        raise InvalidRequestError(
            f"the prompt and a text of input '{PAIRS}' have {size} characters, more than the "
            f"model's context length of {longest} tokens can hold"
        )
    await asyncio.sleep(0)
    encoded = engine.tokenizer(text=request.text, text_pair=text)
    prompt = ids_prompt(np.array(encoded["input_ids"]), engine.facts)
    kinds = encoded.get("token_type_ids")
    if not kinds or 1 not in kinds:
        return prompt, request.params()
    return prompt, request.params(extra_kwargs={"compressed_token_type_ids": kinds.index(1)})


async def _result(
    engine: VllmEngine, prompt: dict[str, Any], params: Any, options: RequestOptions
) -> Any:
    """vLLM's final output for one prompt."""
    result: Any = None
    async with aclosing(engine.generate(prompt, params, None, options)) as outputs:
        async for output in outputs:
            result = output
    if getattr(result, "error", None) is not None:
        raise InvalidRequestError(f"{RUNNING_ERROR}{result.error.message}")
    return result


def _row(output: Any) -> Array:
    row: Array = output.outputs.data.float().numpy()
    return row.ravel()


def _numbers(row: Array) -> Tensor:
    return Tensor.from_numpy(np.ascontiguousarray(row, np.float32), DataType.FP32)


def _count(value: int) -> Tensor:
    return Tensor.from_numpy(np.array([value], np.uint32), DataType.UINT32)


def _read(given: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of pooling; `dimensions` may be a list of one number, as Triton's are."""
    for name in given:
        if name not in _PARAMETERS:
            nearest = suggestion(name, _PARAMETERS)
            raise InvalidRequestError(f"pooling parameter '{name}' is not supported{nearest}")
    found: dict[str, Any] = {}
    if "dimensions" in given:
        value = given["dimensions"]
        first = value[0] if isinstance(value, list) and len(value) == 1 else value
        found["dimensions"] = as_integer("dimensions", first)
        if not 1 <= found["dimensions"] < 1 << 31:
            raise InvalidRequestError("pooling parameter 'dimensions' must be positive")
    if "use_activation" in given:
        found["use_activation"] = as_boolean("use_activation", given["use_activation"])
    return found


def _counts(request: InferenceRequest) -> dict[str, Any]:
    names = {"count_input": "return_num_input_tokens", "count_output": "return_num_output_tokens"}
    return {field: _asked(request, name) for field, name in names.items()}


def _asked(request: InferenceRequest, name: str) -> bool:
    tensor = request.inputs.get(name)
    return tensor is not None and bool(tensor.numpy().any())


def _json(request: InferenceRequest) -> dict[str, Any]:
    elements = request.inputs[EMBEDDING_REQUEST].elements()
    if len(elements) != 1:
        raise _malformed(f"must hold one text, not {len(elements)}")
    try:
        given = json.loads(elements[0])
    except (ValueError, RecursionError) as error:
        raise _malformed(f"is not JSON: {error}") from error
    if not isinstance(given, dict):
        raise _malformed("must be a JSON object")
    return given


def _malformed(complaint: str) -> InvalidRequestError:
    return InvalidRequestError(f"input '{EMBEDDING_REQUEST}': {complaint}")


def _texts(request: InferenceRequest, name: str) -> list[str]:
    tensor = request.inputs.get(name)
    elements: Iterable[bytes] = () if tensor is None else tensor.elements()
    try:
        texts = [element.decode() for element in elements]
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"input '{name}' is not valid UTF-8: {error.reason}") from error
    if len(texts) > _MOST_PAIRS:
        raise InvalidRequestError(
            f"input '{name}' holds {len(texts)} texts, more than {_MOST_PAIRS}"
        )
    return texts
