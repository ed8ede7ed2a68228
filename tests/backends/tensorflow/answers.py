"""Prints what TensorFlow answers with small models, as JSON; run by a Python that has it.

python answers.py REPOSITORY

It writes the models, and opens all in one process, as it takes seconds to import TensorFlow.
"""

import asyncio
import json
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np

from penstock.backend import DataType, InferenceError, Tensor
from penstock.models.config.defaults import with_backend
from penstock.models.config.pbtxt import read_pbtxt
from penstock.testing import running
from penstock_backends.tensorflow import TensorFlowBackend

REPOSITORY = Path(sys.argv[1])
X = np.array([[1, 2]], np.float32)
BITS = np.array([[0x3F80, 0x4000]], np.uint16)
"""One and two in BF16."""


async def answer(name: str, x: Any) -> dict[str, Any]:
    """The outputs, or the text of an error."""
    version = REPOSITORY / name / "1"
    files = [file.name for file in version.iterdir()]
    config = with_backend(read_pbtxt(version.parent / "config.pbtxt"), name, files)
    try:
        async with running(TensorFlowBackend, config, version) as instance:
            [response] = [each async for each in instance.infer({"x": x})]
    except InferenceError as error:
        return {"error": error.message}
    return {name: tensor.numpy().tolist() for name, tensor in response.outputs.items()}


runpy.run_path(str(Path(__file__).with_name("make_models.py")), run_name="__main__")
inputs: dict[str, Any] = {"halved": Tensor.from_numpy(BITS, DataType.BF16)}
names = "tagged untagged halved graph unknown initialised uninitialised garbage".split()
print(json.dumps({name: asyncio.run(answer(name, inputs.get(name, X))) for name in names}))
