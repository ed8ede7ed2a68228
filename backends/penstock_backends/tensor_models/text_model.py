"""`TextModel`: a tokenizer in front of a graph; clients send texts, or pairs of texts."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from math import prod

import numpy as np

from penstock.backend import (
    Array,
    ConfigError,
    DataType,
    InferenceRequest,
    InferenceResponse,
    InvalidRequestError,
    ModelConfig,
    ModelLoadError,
    Outcome,
)
from penstock_backends.tensor_models.batch import answer_each, by_rows, responses, wanted
from penstock_backends.tensor_models.check import check_outputs
from penstock_backends.tensor_models.encoder_facts import note_tokens, report_tokens
from penstock_backends.tensor_models.graph import Graph, as_element, scalar_outputs
from penstock_backends.tensor_models.long_texts import (
    MAX_CHARACTERS,
    MAX_TEXTS,
    MAX_TOKENS,
    Pair,
    Tokens,
    positive,
)
from penstock_backends.tensor_models.padding import PADDING
from penstock_backends.tensor_models.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class RunCost:
    """The costs by which texts are divided among runs of a graph, in tokens with their padding.

    Each run costs `fixed`; one of several texts has no more than `most`, where that is not 0.
    """

    fixed: int
    most: int


CPU = RunCost(32, 2048)
"""Measured with a small encoder: what a run of more tokens needs is not in the caches any more."""
GPU = RunCost(4096, 0)
"""A GPU is underused by few tokens; an estimate."""

_FED = ("input_ids", "attention_mask", "token_type_ids")


class TextModel:
    """Answers batches of requests that hold texts, one row per text, or per pair of two inputs.

    Their tokens are reported on `loop`, that of the requests.
    """

    def __init__(
        self,
        config: ModelConfig,
        graph: Graph,
        tokenizer: Tokenizer,
        loop: asyncio.AbstractEventLoop,
        run_cost: RunCost = CPU,
    ) -> None:
        _check_inputs(config, graph)
        check_outputs(config, graph)
        self._graph = graph
        self._provider = config.backend
        self._tokenizer = tokenizer
        self._inputs = [tensor.name for tensor in config.input]
        self._outputs = [*config.outputs_by_name]
        self._scalar_outputs = scalar_outputs(config)
        # Outputs of the padded length cannot be joined from several runs.
        self._one_run = any(-1 in graph.outputs[name].dims[1:] for name in self._outputs)
        self._run_cost = run_cost
        self._loop = loop

    def __call__(self, requests: Sequence[InferenceRequest]) -> list[Outcome]:
        """Answer every request, in order. Blocks."""
        return answer_each(requests, self._texts, self._answer)

    def count_tokens(self, texts: Sequence[str]) -> int:
        """Tokens of all texts together, as far as the model reads them."""
        read = self._tokenizer.texts.read(texts)
        return sum(len(tokens.ids) for tokens in self._tokenizer.encode(read))

    def _texts(self, request: InferenceRequest) -> Sequence[str | Pair | Tokens]:
        """The texts, bounded before they are tokenized beside those of others."""
        columns = [self._column(request, name) for name in self._inputs]
        if len(columns) == 1:
            return self._tokenizer.texts.read(columns[0])
        ones, others = columns
        if len(ones) != len(others):
            raise InvalidRequestError(
                f"inputs '{self._inputs[0]}' and '{self._inputs[1]}' hold {len(ones)} and "
                f"{len(others)} texts; each text needs the one that goes with it"
            )
        return self._tokenizer.texts.read_pairs([*zip(ones, others, strict=True)])

    def _column(self, request: InferenceRequest, name: str) -> list[str]:
        tensor = request.inputs.get(name)
        if tensor is None:
            raise InvalidRequestError(f"input '{name}' is missing")
        bounds = self._tokenizer.texts
        bounds.check_count(prod(tensor.shape))
        try:
            return [bounds.decoded(element) for element in tensor.elements()]
        except UnicodeDecodeError as error:
            raise InvalidRequestError(
                f"input '{name}' holds a text that is not UTF-8: byte {error.start} is "
                f"0x{error.object[error.start]:02x}"
            ) from error

    def _answer(
        self, requests: list[InferenceRequest], texts: list[Sequence[str | Pair | Tokens]]
    ) -> list[InferenceResponse]:
        tokens = self._tokenizer.encode([*chain.from_iterable(texts)])
        names = wanted(requests, self._outputs)
        rows = [*map(len, texts)]
        lengths = np.array([len(one.ids) for one in tokens], np.int64)
        places = [np.arange(len(tokens))] if self._one_run else buckets(lengths, self._run_cost)
        arrays = self._encode(tokens, places, names)
        note_tokens(requests, rows, lengths, places, self._provider)
        report_tokens(requests, rows, lengths, self._loop)
        outputs = {
            name: (self._graph.outputs[name].datatype, self._split(name, array, rows))
            for name, array in zip(names, arrays, strict=True)
        }
        return responses(requests, outputs)

    def _split(self, name: str, array: Array, rows: list[int]) -> list[Array]:
        return by_rows(name, as_element(array) if name in self._scalar_outputs else array, rows)

    def _encode(self, tokens: list[Tokens], places: list[Array], names: list[str]) -> list[Array]:
        runs = [self._run([tokens[at] for at in part], names) for part in places]
        if len(runs) == 1:
            return runs[0]
        back = np.argsort(np.concatenate(places))
        return [np.concatenate(parts)[back] for parts in zip(*runs, strict=True)]

    def _run(self, tokens: list[Tokens], names: list[str]) -> list[Array]:
        feeds = self._tokenizer.feeds(tokens)
        return self._graph.run(
            {
                n: feeds[n].astype(t.datatype.numpy, copy=False)
                for n, t in self._graph.inputs.items()
            },
            names,
        )


def check_text(config: ModelConfig) -> None:
    """Check the configuration of a text encoder; raises `ConfigError`."""
    for name in (MAX_TOKENS, MAX_CHARACTERS, MAX_TEXTS):
        positive(config, name)
    if config.batch_input or config.batch_output or config.parameter(PADDING) is not None:
        raise ConfigError(
            f"model '{config.name}': a text encoder pads its texts itself, so it takes neither"
            f" batch_input nor batch_output nor '{PADDING}'"
        )
    dims = ((1,),) if config.max_batch_size else ((1,), (-1,), (-1, 1))
    fit = [t.data_type is DataType.BYTES and t.dims in dims for t in config.input]
    if len(fit) not in (1, 2) or not all(fit):
        raise ConfigError(
            f"model '{config.name}': a text encoder needs one input of TYPE_STRING with dims: [ 1 ]"
            ", or two of them for pairs of texts"
        )


def _check_inputs(config: ModelConfig, graph: Graph) -> None:
    unknown = graph.inputs.keys() - set(_FED)
    if unknown or _FED[0] not in graph.inputs:
        raise ModelLoadError(
            f"model '{config.name}': the graph of a text encoder has the inputs "
            f"{', '.join(_FED)}, the first at least; this one has {', '.join(graph.inputs)}"
        )


# -- buckets ---------------------------------------------------------------------------------------


def buckets(lengths: Array, run_cost: RunCost) -> list[Array]:
    """The indices of the texts of each run, at the least total cost in padded tokens."""
    rows = len(lengths)
    padded = rows * int(lengths.max(initial=0))
    if padded - int(lengths.sum()) <= run_cost.fixed and not 0 < run_cost.most < padded:
        return [np.arange(rows)]
    order = np.argsort(lengths, kind="stable")
    starts = _starts(lengths[order], run_cost)
    if len(starts) == 1:  # in their own order, which a single run keeps
        return [np.arange(rows)]
    return [order[start:end] for start, end in zip(starts, [*starts[1:], rows], strict=True)]


def _starts(lengths: Array, run_cost: RunCost) -> list[int]:
    """The starts of the parts in the cheapest partition of ascending lengths."""
    most = run_cost.most or sys.maxsize
    rows = len(lengths)
    cost = np.zeros(rows + 1)
    begin = np.zeros(rows + 1, np.int64)
    for end in range(1, rows + 1):
        first = max(0, end - max(1, most // max(1, int(lengths[end - 1]))))
        padded = np.arange(end - first, 0, -1) * lengths[end - 1]
        costs = cost[first:end] + run_cost.fixed + padded
        begin[end] = first + costs.argmin()
        cost[end] = costs[begin[end] - first]
    starts = []
    while rows:
        rows = int(begin[rows])
        starts.append(rows)
    return starts[::-1]
