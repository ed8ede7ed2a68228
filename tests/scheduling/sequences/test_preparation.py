"""Control tensors and states that are added to requests."""

from __future__ import annotations

import numpy as np
import pytest

from fakes import turns
from penstock.core.config import config_from_json
from penstock.core.tensor import Tensor
from scheduling.sequences.scene import Scene

CONFIG = {
    "name": "m",
    "max_batch_size": 4,
    "input": [
        {"name": "IN", "data_type": "TYPE_INT32", "dims": [1]},
        {"name": "START", "data_type": "TYPE_INT32", "dims": [1]},
    ],
    "sequence_batching": {
        "max_sequence_idle_microseconds": 1000000,
        "control_input": [
            {
                "name": "START",
                "control": [{"kind": "CONTROL_SEQUENCE_START", "int32_false_true": [0, 1]}],
            }
        ],
    },
}


@pytest.mark.contract("V-17")
async def test_a_control_takes_the_place_of_the_clients_tensor_for_the_execution_only() -> None:
    scene = Scene(config_from_json(CONFIG))
    theirs = Tensor.from_numpy(np.array([[7]], np.int32))
    inputs = {"IN": theirs, "START": theirs}
    inference = scene.send(1, start=True, end=True, inputs=inputs)
    await turns()
    assert inference.request.inputs["START"].numpy().tolist() == [[1]]
    assert inference.request.inputs["IN"] is theirs
    assert inputs["START"] is theirs
