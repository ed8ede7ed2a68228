"""Models whose file tells what the configuration does not: refused by the check as by the load."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest
from onnx import TensorProto

from models.checking.house import errors, told_by_load, write_model
from models.checking.refused_rows import network, parameters

_GRAPHS: tuple[tuple[int | str, ...], ...] = (("n", 4), (4,), (1, 4), ("n", "m"), ("n",), ())
_DIMS = ("4", "-1", "-1, 4", "1, 4", "2, 4", "1", "-1, -1")


@pytest.mark.slow
@pytest.mark.parametrize("rows", [0, 4])
async def test_shapes_of_inputs_are_refused_as_by_the_load(tmp_path: Path, rows: int) -> None:
    models = {f"m{at}": each for at, each in enumerate(product(_GRAPHS, _DIMS))}
    for name, (graph, dims) in models.items():
        fields = f'name: "IN" data_type: TYPE_FP32 dims: [ {dims} ]'
        config = f'backend: "onnxruntime" max_batch_size: {rows} input [ {{ {fields} }} ]'
        write_model(tmp_path, name, config, {"1/model.onnx": network(dims=graph)})
    found = {finding.model for finding in await errors(tmp_path)}
    assert found == {name for name in models if await told_by_load(tmp_path, name)}
    assert 10 < len(found) < len(models) - 3


_RAGGED = 'input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] allow_ragged_batch: true } ]'
_NAMED = {
    "files": parameters(penstock__image='{"input": "IN", "layout": "HWC"}'),
    "sound": parameters(penstock__audio='{"input": "IN", "rate": 16000}'),
    "sources": "batch_input [ { kind: BATCH_ELEMENT_COUNT target_name: 'N' data_type: TYPE_FP32"
    " source_input: 'IN' } ]",
    "targets": "batch_output [ { kind: BATCH_SCATTER_WITH_INPUT_SHAPE target_name: 'OUT'"
    f" source_input: 'IN' }} ] {_RAGGED.replace('true', 'false')}",
    "padded": parameters(penstock__padding="IN=0", penstock__padded_outputs="OUT") + _RAGGED,
    "texts": parameters(penstock__tokenizer="tokenizer.json"),
}
_WORDS = {"type": "WordLevel", "vocab": {"[UNK]": 0}, "unk_token": "[UNK]"}


@pytest.mark.slow
@pytest.mark.parametrize("name", _NAMED)
async def test_tensors_that_are_named_elsewhere_need_not_be_declared(
    tmp_path: Path, name: str
) -> None:
    """The file has them, and more."""
    graphs = {
        "files": network(dims=("n", "h", "w", 3)),
        "sources": network(dims=("n", "m"), more=("N",)),
        "texts": network(TensorProto.INT64, ("n", "m"), ("input_ids", "OUT"), ("attention_mask",)),
    }
    graph = graphs.get(name) or network(dims=("n", "m"))
    config = f'backend: "onnxruntime" max_batch_size: 4 {_NAMED[name]}'
    write_model(tmp_path, "m", config, {"1/model.onnx": graph})
    (tmp_path / "m/1/tokenizer.json").write_text(json.dumps({"model": _WORDS}))
    assert await told_by_load(tmp_path, "m") == ""
    assert await errors(tmp_path) == []
