"""What was reported of other servers, tried on ours as a stranger would: on its ports.

The rows that these tests stand for are in `public_faults`; others are held by tests elsewhere.
"""

from __future__ import annotations

import asyncio
import json
import pickle
import struct
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import gettempdir
from typing import Any
from urllib.parse import quote

import grpc
import httpx
import pytest
from tritonclient.grpc import InferenceServerClient
from tritonclient.utils import InferenceServerException

from access.models import OPEN, guarded, write_models
from gateway.serving import LOCAL
from harness.posix_memory import PosixMemory
from harness.processes import read_of
from harness.serving import Served, serving
from penstock.core.exit_deadline import ExitDeadline
from penstock.gateway.app import open_gateway
from penstock.protocol import grpc_service_pb2 as pb

pytestmark = pytest.mark.slow

_NUMBERS = """
backend: "identity"
input [{ name: "IN" data_type: TYPE_FP32 dims: [-1] }]
output [{ name: "OUT" data_type: TYPE_FP32 dims: [-1] }]
"""
_TEXTS = """
backend: "python"
input [{ name: "IN" data_type: TYPE_STRING dims: [-1] }]
output [{ name: "OUT" data_type: TYPE_STRING dims: [-1] }]
"""
_ECHO = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        pb_utils.Logger.log_error(f"asked by {request.request_id()}")
        texts = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", texts)])
"""
_COMMAND = "a;touch ${HOME:+}pwned;$(touch pwned)`touch pwned`"
"""A name that a shell would have its own thoughts about."""

_INFER = "/inference.GRPCInferenceService/ModelInfer"


def _write(folder: Path, name: str, config: str, code: str = "") -> None:
    (folder / name / "1").mkdir(parents=True)
    (folder / name / "config.pbtxt").write_text(config)
    if code:
        (folder / name / "1" / "model.py").write_text(code)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that lets strangers do whatever a flag allows; `secret` lies beside its models."""
    folder = tmp_path_factory.mktemp("door")
    _write(folder, "secret", _NUMBERS)
    _write(folder / "models", "numbers", _NUMBERS)
    _write(folder / "models", "texts", _TEXTS, _ECHO)
    _write(folder / "models", _COMMAND, _TEXTS, _ECHO)
    flags = ("--model-control-mode=explicit", "--load-model=numbers", "--load-model=texts")
    things = ("model-upload", "client-shm", "log-control", "trace-control")
    allowed = (f"--allow-{thing}=true" for thing in things)
    with serving(folder / "models", folder / "log", "--log-verbose=1", *flags, *allowed) as server:
        yield server


@pytest.fixture
def http(served: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://{served.http}", timeout=60) as client:
        yield client
        assert client.get("/v2/health/live").status_code == 200


@pytest.fixture
def client(served: Served) -> Iterator[InferenceServerClient]:
    with InferenceServerClient(served.grpc) as client:
        yield client
        assert client.is_server_live()


def _folder(served: Served) -> Path:
    return served.log.parent


def _refused_load(client: InferenceServerClient, name: str, **more: Any) -> str:
    with pytest.raises(InferenceServerException) as error:
        client.load_model(name, **more)
    return str(error.value.message())


# -- names and files ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["../secret", "..", ".", "numbers/../../secret", "/etc", "a\\b"])
def test_names_of_models_lead_nowhere(
    name: str, client: InferenceServerClient, http: httpx.Client
) -> None:
    before = client.get_model_repository_index(as_json=True)
    assert "must not contain path traversal" in _refused_load(client, name)
    loaded = http.post(f"/v2/repository/models/{quote(name, safe='')}/load")
    assert loaded.status_code >= 400
    assert client.get_model_repository_index(as_json=True) == before


def _ensemble(step: str) -> str:
    tensors = {"name": "IN", "data_type": "TYPE_FP32", "dims": [-1]}
    mapped = {"model_name": step, "input_map": {"IN": "IN"}, "output_map": {"OUT": "OUT"}}
    return json.dumps(
        {
            "platform": "ensemble",
            "input": [tensors],
            "output": [{**tensors, "name": "OUT"}],
            "ensemble_scheduling": {"step": [{**mapped, "model_version": -1}]},
        }
    )


def test_steps_of_an_ensemble_lead_nowhere(client: InferenceServerClient, served: Served) -> None:
    """What is there and what is not are refused alike, so that the answer tells neither."""
    _write(_folder(served) / "models", "fork", _NUMBERS)
    told = set()
    for step in ("../secret", "../nothing", "../../../../etc", "fork/../../secret"):
        answer = _refused_load(client, "fork", config=_ensemble(step))
        told.add(answer.replace(step, "STEP"))
    assert len(told) == 1
    assert "STEP" in told.pop()


@pytest.mark.parametrize("path", ["file:../evil", "file:1/../../../evil", "file:../../evil"])
def test_files_of_a_load_stay_in_their_folder(
    path: str, client: InferenceServerClient, served: Served
) -> None:
    config = json.dumps({"backend": "identity"})
    answer = _refused_load(client, "numbers", config=config, files={path: b"x"})
    assert "must stay within model directory" in answer
    assert list(_folder(served).rglob("evil")) == []


def test_a_name_is_no_command(client: InferenceServerClient, served: Served) -> None:
    client.load_model(_COMMAND)
    assert client.is_model_ready(_COMMAND)
    client.unload_model(_COMMAND)
    written = [*_folder(served).rglob("pwned*"), *Path.cwd().glob("pwned*")]
    assert written == []


# -- the log --------------------------------------------------------------------------------------


def test_no_line_of_the_log_is_forged(http: httpx.Client, served: Served) -> None:
    """By an id that a model logs, over both protocols, and by a target that the server logs."""
    forged = "\r\nE1130 00:00:00.000000 1 forged.py:1] forged\x1b[2J"
    tensor = {"name": "IN", "datatype": "BYTES", "shape": [1], "data": ["x"]}
    answer = http.post("/v2/models/texts/infer", json={"id": forged, "inputs": [tensor]})
    assert answer.status_code == 200
    with grpc.insecure_channel(served.grpc) as channel:
        message = pb.ModelInferRequest(model_name="texts", id=forged)
        message.inputs.add(name="IN", datatype="BYTES", shape=[1])
        message.raw_input_contents.append(b"\1\0\0\0x")
        _ask(channel, message)
    assert http.get(f"/v2/models/{quote(forged)}/ready").status_code != 200
    lines = served.log.read_text().splitlines()
    assert sum("forged.py" in line for line in lines) >= 2
    assert not [line for line in lines if line.startswith("E1130 00:00:00.000000 1 forged")]
    assert not [line for line in lines if "\x1b" in line]


def _ask(channel: grpc.Channel, message: pb.ModelInferRequest) -> pb.ModelInferResponse:
    serialize, parse = pb.ModelInferRequest.SerializeToString, pb.ModelInferResponse.FromString
    answer: pb.ModelInferResponse = channel.unary_unary(_INFER, serialize, parse)(
        message, timeout=60
    )
    return answer


# -- shared memory --------------------------------------------------------------------------------


@pytest.fixture(params=["{own}", "/{own}", "///{own}", "{psm}", "../..{file}", "/../..{file}"])
def key(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A key that leads to what is there, as long as it is to be, and is not the client's."""
    file, number = tmp_path / "file", uuid.uuid4().hex
    own, psm = f"triton_python_backend_shm_region_{number}", f"psm_{number[:8]}"
    paths = (file, Path("/dev/shm", own), Path("/dev/shm", psm))
    for path in paths:
        path.write_bytes(bytes(64))
    yield request.param.format(own=own, psm=psm, file=file)
    for path in paths:
        path.unlink()


def test_keys_of_others_are_refused(
    key: str, client: InferenceServerClient, http: httpx.Client
) -> None:
    with pytest.raises(InferenceServerException):
        client.register_system_shared_memory("r", key, 64)
    body = {"key": key, "byte_size": 64}
    answer = http.post("/v2/systemsharedmemory/region/r/register", json=body)
    assert answer.status_code >= 400
    assert http.get("/v2/systemsharedmemory/status").json() == []


def test_memory_of_the_server_has_no_name(http: httpx.Client, served: Served) -> None:
    """Neither of its own process nor of those of its models, also where tensors are large."""
    text = "x" * (1 << 20)
    tensor = {"name": "IN", "datatype": "BYTES", "shape": [1], "data": [text]}
    answer = http.post("/v2/models/texts/infer", json={"inputs": [tensor]})
    assert answer.json()["outputs"][0]["data"] == [text]
    processes = [served.process.pid, *served.family()]
    assert len(processes) > 1
    assert not [pid for pid in processes if b"/dev/shm/" in read_of(pid, "maps")]


@pytest.mark.parametrize(
    ("offset", "size"),
    [(0, 4100), (4096, 4), (1 << 63, 4), ((1 << 64) - 4, 4), (0, (1 << 64) - 1), (4093, 4)],
)
def test_what_lies_outside_of_a_region_is_refused(
    offset: int, size: int, memory: PosixMemory, client: InferenceServerClient, http: httpx.Client
) -> None:
    """A tensor outside of its region, and a region outside of its object."""
    client.register_system_shared_memory("r", memory.key, 4096)
    place = {"shared_memory_region": "r", "shared_memory_offset": offset}
    tensor = {
        "name": "IN",
        "datatype": "FP32",
        "shape": [size // 4],
        "parameters": {**place, "shared_memory_byte_size": size},
    }
    answer = http.post("/v2/models/numbers/infer", json={"inputs": [tensor]})
    client.unregister_system_shared_memory("r")
    assert answer.status_code == 400, answer.text
    body = {"key": memory.key, "offset": offset, "byte_size": size}
    assert http.post("/v2/systemsharedmemory/region/q/register", json=body).status_code >= 400
    assert http.get("/v2/systemsharedmemory/status").json() == []


def test_memory_that_nobody_registered_is_refused(http: httpx.Client, served: Served) -> None:
    place = {"shared_memory_region": "nobody's", "shared_memory_byte_size": 4}
    tensor = {"name": "IN", "datatype": "FP32", "shape": [1], "parameters": place}
    for inputs in ({"inputs": [tensor]}, {"inputs": [], "outputs": [{**tensor, "name": "OUT"}]}):
        assert http.post("/v2/models/numbers/infer", json=inputs).status_code in (400, 404)
    message = pb.ModelInferRequest(model_name="numbers")
    found = message.inputs.add(name="IN", datatype="FP32", shape=[1])
    found.parameters["shared_memory_region"].string_param = "nobody's"
    found.parameters["shared_memory_byte_size"].int64_param = 4
    _refused_message(served, message)


# -- sizes and shapes -----------------------------------------------------------------------------


def _refused_message(served: Served, message: pb.ModelInferRequest) -> str:
    with (
        grpc.insecure_channel(served.grpc) as channel,
        pytest.raises(grpc.RpcError) as error,
    ):
        _ask(channel, message)
    assert error.value.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND)
    return str(error.value.details())


@pytest.mark.parametrize(
    "path",
    [
        "/v2/models/numbers/infer",
        "/v2/models/numbers/generate",
        "/v2/models/numbers/generate_stream",
        "/v2/repository/models/numbers/load",
        "/v2/repository/index",
        "/v2/logging",
        "/v2/trace/setting",
        "/v1/chat/completions",
    ],
)
@pytest.mark.parametrize("levels", [101, 4000])
def test_deep_json_is_refused(path: str, levels: int, http: httpx.Client) -> None:
    """Also where it is well-formed, and whatever its members are."""
    for opening, closing in (("[", "]"), ('{"a":', "}"), ('{"inputs":[', "]}")):
        answer = http.post(path, content=opening * levels + "1" + closing * levels)
        assert answer.status_code in (400, 500)
        assert "nest" in answer.text


_MANY = "which exceeds the maximum allowed value of 4096"


def test_many_outputs_are_refused(http: httpx.Client, served: Served) -> None:
    tensor = {"name": "IN", "datatype": "FP32", "shape": [1], "data": [1]}
    asked = {"inputs": [tensor], "outputs": [{"name": f"O{n}"} for n in range(5000)]}
    answer = http.post("/v2/models/numbers/infer", json=asked)
    assert (answer.status_code, _MANY in answer.text) == (400, True), answer.text
    message = pb.ModelInferRequest(model_name="numbers")
    message.inputs.add(name="IN", datatype="FP32", shape=[1])
    message.raw_input_contents.append(bytes(4))
    for number in range(5000):
        message.outputs.add(name=f"O{number}")
    assert _MANY in _refused_message(served, message)


@pytest.mark.parametrize(
    "shape",
    [
        [-1],
        [-1, -4],
        [1 << 62],
        [(1 << 62) + 1],
        [(1 << 62) + 4],
        [1 << 62, 8],
        [1 << 32, 1 << 32],
        [1 << 31, 1 << 31, 4],
        [(1 << 63) - 1, 2],
    ],
)
def test_shapes_that_cannot_be_are_refused(
    shape: Sequence[int], http: httpx.Client, served: Served
) -> None:
    """Sizes in bytes are 0, 4 or 16 where 64 bits overflow, which is what is sent."""
    parameters = {"binary_data_size": 16}
    for more, raw in (({"data": [1]}, b""), ({"parameters": parameters}, bytes(16))):
        tensor = {"name": "IN", "datatype": "FP32", "shape": shape, **more}
        text = json.dumps({"inputs": [tensor]}).encode()
        headers = {"Inference-Header-Content-Length": str(len(text))}
        answer = http.post("/v2/models/numbers/infer", content=text + raw, headers=headers)
        assert answer.status_code in (400, 500), answer.text
    for raw in (b"", bytes(4), bytes(16)):
        message = pb.ModelInferRequest(model_name="numbers")
        message.inputs.add(name="IN", datatype="FP32", shape=shape)
        message.raw_input_contents.append(raw)
        _refused_message(served, message)


@pytest.mark.parametrize(
    "raw",
    [
        b"\xff\xff\xff\xff",
        b"\xff\xff\xff\x7fabc",
        b"\x05\0\0\0abc",
        b"\x01\0\0\0",
        b"\0\0\0",
        b"\x01\0\0\0ab",
        b"\x01\0\0\0a\x01\0\0\0b",
        b"",
    ],
)
def test_lengths_of_elements_that_cannot_be_are_refused(
    raw: bytes,
    memory: PosixMemory,
    client: InferenceServerClient,
    http: httpx.Client,
    served: Served,
) -> None:
    """Of one element: in a message, behind the JSON of a body, and in shared memory."""
    memory.data[: len(raw)] = raw
    client.register_system_shared_memory("r", memory.key, 4096)
    shared = {"shared_memory_region": "r", "shared_memory_byte_size": len(raw)}
    statuses = []
    for parameters, rest in (({"binary_data_size": len(raw)}, raw), (shared, b"")):
        tensor = {"name": "IN", "datatype": "BYTES", "shape": [1], "parameters": parameters}
        text = json.dumps({"inputs": [tensor]}).encode()
        headers = {"Inference-Header-Content-Length": str(len(text))}
        answer = http.post("/v2/models/texts/infer", content=text + rest, headers=headers)
        statuses.append(answer.status_code)
    client.unregister_system_shared_memory("r")
    assert statuses == [400, 400]
    message = pb.ModelInferRequest(model_name="texts")
    message.inputs.add(name="IN", datatype="BYTES", shape=[1])
    message.raw_input_contents.append(raw)
    _refused_message(served, message)


class _Opened:
    """What opens a file where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, (str(self._path), "w")


def test_pickles_stay_bytes(tmp_path: Path, http: httpx.Client, served: Served) -> None:
    pickled = pickle.dumps(_Opened(tmp_path / "pwned"), protocol=0)
    tensor = {"name": "IN", "datatype": "BYTES", "shape": [1], "data": [pickled.decode("ascii")]}
    answer = http.post("/v2/models/texts/infer", json={"inputs": [tensor]})
    assert answer.json()["outputs"][0]["data"] == tensor["data"]
    message = pb.ModelInferRequest(model_name="texts")
    message.inputs.add(name="IN", datatype="BYTES", shape=[1])
    message.raw_input_contents.append(struct.pack("<I", len(pickled)) + pickled)
    with grpc.insecure_channel(served.grpc) as channel:
        echoed = _ask(channel, message).raw_output_contents
    assert list(echoed) == list(message.raw_input_contents)
    assert not (tmp_path / "pwned").exists()


# -- what is told, and what is asked for ----------------------------------------------------------

_WRONG: Sequence[tuple[str, object]] = (
    ("/v2/models/numbers/infer", {"inputs": 5}),
    ("/v2/models/numbers/infer", {"inputs": [{"name": "IN", "shape": "x", "datatype": "FP32"}]}),
    ("/v2/models/texts/infer", {"inputs": [{"name": 5, "shape": [1], "datatype": "BYTES"}]}),
    ("/v2/models/numbers/generate", {"IN": {"a": []}}),
    ("/v2/models/none/infer", {"inputs": []}),
    ("/v2/models/numbers/versions/x/infer", {"inputs": []}),
    ("/v2/repository/models/none/load", {}),
    ("/v2/repository/models/numbers/load", {"parameters": {"config": "{"}}),
    ("/v2/repository/models/new/load", {"parameters": {"config": "{}", "file:../x": "eA=="}}),
    ("/v2/repository/models/new/load", {"parameters": {"config": "{}", "file:1/m.py": "x"}}),
    (
        "/v2/repository/models/new/load",
        {"parameters": {"config": '{"backend":"python"}', "file:1/model.py": "MS8wCg=="}},
    ),
    ("/v2/systemsharedmemory/region/r/register", {"key": 5, "byte_size": "x"}),
    ("/v2/trace/setting", {"trace_rate": "x"}),
    ("/v2/logging", {"log_verbose_level": "x"}),
    ("/v1/chat/completions", {"model": "numbers", "messages": 5}),
    ("/v1/completions", {"model": ["x"]}),
)


@pytest.mark.parametrize(("path", "body"), _WRONG)
def test_refusals_tell_nothing_of_the_machine(path: str, body: object, http: httpx.Client) -> None:
    """No folder of the server or of its clients' files, no home, no address in memory."""
    answer = http.post(path, json=body)
    assert answer.status_code >= 400
    for never in (gettempdir(), str(Path.home()), "/site-packages", " at 0x"):
        assert never not in answer.text, answer.text


@pytest.mark.parametrize(
    "host",
    [
        "x/v2/health/live?",
        "x/v2/health/live#",
        "x/v2/health/live\\",
        "x:80/v2/health/live?a=",
        "a@x/v2/health/live?",
        "v2/health/live",
    ],
)
async def test_no_host_opens_a_route(host: str, tmp_path: Path) -> None:
    """Health is everybody's and the models are not, whatever the request calls its server."""
    async with (
        guarded(write_models(tmp_path)) as server,
        open_gateway(server, LOCAL, ExitDeadline(2)) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", verify=False) as client,
    ):
        assert (await client.get(f"/v2/models/{OPEN}/ready")).status_code == 200
        for target in (f"/v2/models/{OPEN}", f"http://x/v2/models/{OPEN}"):
            request = f"GET {target} HTTP/1.1\r\nhost: {host}\r\n\r\n"
            assert await _status(port, request.encode()) in (400, 401)


async def _status(port: int, request: bytes) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    line = await asyncio.wait_for(reader.readline(), 30)
    writer.transport.abort()
    return int(line.split()[1])
