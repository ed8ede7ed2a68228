"""Repositories whose files are not all UTF-8, as an editor of a Chinese Windows writes them."""

from __future__ import annotations

import json
import os
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import pytest

from conformance.python_models.client import Client, floats
from conformance.python_models.repository import PythonModel
from harness.serving import Served

TEXT = "模型".encode("gbk")
"""Two of its four bytes are one character of UTF-8, the others none."""

_ECHO = """
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def execute(self, requests):
            return [self.respond(request) for request in requests]

        def respond(self, request):
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            return pb_utils.InferenceResponse([pb_utils.Tensor("Y", x)])
"""


@dataclass(frozen=True, slots=True)
class Edited:
    """A model whose configuration has further bytes, with files named by bytes beside it."""

    more: bytes
    output: bytes = b""
    files: tuple[tuple[bytes, bytes], ...] = ()

    def write(self, directory: Path) -> None:
        """Write the model into a directory that has its name."""
        PythonModel(_ECHO).write(directory)
        path = directory / "config.pbtxt"
        text = path.read_bytes().replace(b'name: "Y"', b'name: "Y" ' + self.output)
        path.write_bytes(text + self.more)
        for name, content in self.files:
            file = Path(directory, os.fsdecode(name))
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(content)


_OWNER = b"# " + TEXT + b'\nparameters { key: "owner" value { string_value: "' + TEXT + b'" } }\n'
_LABELS = b'label_filename: "' + TEXT + b'.txt"'
_SAMPLE = b'data_type: TYPE_FP32 dims: 1 input_data_file: "' + TEXT + b'"'
_WARMUP = b'model_warmup { name: "w" batch_size: 1 inputs { key: "X" value { ' + _SAMPLE + b" } } }"

MODELS = {
    "owned": Edited(_OWNER),
    "labelled": Edited(b"", _LABELS, ((TEXT + b".txt", b"no\n" + TEXT),)),
    "warmed": Edited(_WARMUP, files=((b"warmup/" + TEXT, bytes(4)),)),
    os.fsdecode(TEXT): PythonModel(_ECHO, config=None),
}


@pytest.mark.contract("C-01")
def test_bytes_of_a_value_are_passed_over_with_a_warning(client: Client, server: Served) -> None:
    assert client.infer("owned", {"X": floats(1, 2)})["Y"].tolist() == [1, 2]
    assert client.config("owned")["parameters"] == {"owner": {"string_value": "ģ"}}
    place = "/owned/config.pbtxt:8: bytes that are not UTF-8 are left out of"
    assert f"{place} 'parameters[owner].value.string_value'" in server.log.read_text()


def test_files_are_found_by_such_names(client: Client, server: Served) -> None:
    assert client.ready("warmed")
    outputs = [{"name": "Y", "parameters": {"classification": 1}}]
    body = {
        "inputs": [{"name": "X", "datatype": "FP32", "shape": [2], "data": [0, 1]}],
        "outputs": outputs,
    }
    url = f"http://{server.http}/v2/models/labelled/infer"
    with urllib.request.urlopen(url, json.dumps(body).encode(), timeout=60) as answer:
        assert b'"data":["1.000000:1:%b"]' % TEXT in answer.read()


def test_folder_with_such_a_name_is_no_model(client: Client) -> None:
    index = client.call("get_model_repository_index", as_json=True)["models"]
    assert [model["name"] for model in index] == ["labelled", "owned", "warmed"]
