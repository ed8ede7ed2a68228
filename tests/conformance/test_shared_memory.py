"""Shared memory of clients, through both doors: the real server's answers, and its own client."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from tritonclient.utils import InferenceServerException, serialize_byte_tensor
from tritonclient.utils import shared_memory as shm

from conformance.golden import Case, Peer
from harness.posix_memory import posix_memory
from harness.processes import read_of
from harness.recorded import answers, needs_answers
from harness.repeat_model import REPEAT
from harness.serving import Served, serving, wait_until

_ADD = """\
import time
from pathlib import Path

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            a, b = (pb_utils.get_input_tensor_by_name(request, n).as_numpy() for n in NAMES)
            if request.request_id() == "slow":
                running = Path(__file__).with_name("running")
                running.touch()
                while running.exists():
                    time.sleep(0.005)
            outputs = [pb_utils.Tensor("OUTPUT0", a + b), pb_utils.Tensor("OUTPUT1", a - b)]
            responses.append(pb_utils.InferenceResponse(outputs))
        return responses


NAMES = ("INPUT0", "INPUT1")
"""

_CONFIG = """\
backend: "python"
max_batch_size: 8
input [ { name: "INPUT0" data_type: TYPE_INT32 dims: [ -1 ] },
        { name: "INPUT1" data_type: TYPE_INT32 dims: [ -1 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_INT32 dims: [ -1 ] },
         { name: "OUTPUT1" data_type: TYPE_INT32 dims: [ -1 ] } ]
"""

_IDENTITY = """\
backend: "identity"
max_batch_size: 8
input [ { name: "IN" data_type: TYPE_STRING dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_STRING dims: [ -1 ] } ]
"""


@pytest.fixture(scope="module", params=["grpcio", "native"])
def server(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Served]:
    """A server whose clients may share memory, with a model in a process and others in threads."""
    directory = tmp_path_factory.mktemp("shared_memory")
    for name, config in (("simple", _CONFIG), ("strings", _IDENTITY), ("repeat", REPEAT)):
        path = directory / "models" / name
        (path / "1").mkdir(parents=True)
        (path / "config.pbtxt").write_text(config)
    (directory / "models" / "simple" / "1" / "model.py").write_text(_ADD)
    options = ("--allow-client-shm=true", f"--grpc-transport={request.param}")
    with serving(directory / "models", directory / "log", *options) as served:
        yield served


Door = tuple[ModuleType, Any]


@pytest.fixture(params=["grpc", "http"])
def door(server: Served, request: pytest.FixtureRequest) -> Iterator[Door]:
    """The client of one protocol, and its module."""
    module = {"grpc": grpcclient, "http": httpclient}[request.param]
    with module.InferenceServerClient(getattr(server, request.param)) as client:
        yield module, client
        client.unregister_system_shared_memory()


# -- the real server's answers --------------------------------------------------------------------


@needs_answers
@pytest.mark.contract("G-14", "G-15", "G-16", "G-17", "G-18", "X-07", "X-09", "X-10", "X-11")
@pytest.mark.contract("GP-11", "GP-12", "H-17", "H-18", "H-19", "H-20", "H-21", "H-22", "HI-19")
def test_answers_are_those_of_the_real_server(server: Served) -> None:
    recorded = answers("shared_memory.json")
    expected_memory = recorded.pop("out region after")["int32"]
    peer = Peer(server.grpc, server.http, Path("/"))
    with posix_memory(4096) as first, posix_memory(8192) as second, posix_memory(4096) as third:
        keys = {"$SHM_KEY_b": second.key, "$SHM_KEY_c": third.key, "$SHM_KEY": first.key}
        numbers = np.frombuffer(first.data, np.int32)
        numbers[:16], numbers[16:32] = range(16), 1
        found = {}
        for name, case in recorded.items():
            if name == "status all":  # one more was there then
                _register(peer, "", third.key)
            found[name] = peer.difference(Case("", name, _with_keys(case, keys)))
            if name == "infer in and out shm":
                assert numbers[32:64].tolist() == expected_memory
    assert {name: text for name, text in found.items() if text is not None} == {}


def _with_keys(case: Any, keys: dict[str, str]) -> Any:
    text = json.dumps(case)
    for placeholder, key in keys.items():  # longest first
        text = text.replace(placeholder, key.lstrip("/"))
    return json.loads(text)


def _register(peer: Peer, name: str, key: str) -> None:
    request = {"name": name, "key": key, "byte_size": "64"}
    case = {"rpc": "SystemSharedMemoryRegister", "request": request, "code": "OK"}
    assert peer.difference(Case("", "", case)) is None


# -- its own client -------------------------------------------------------------------------------


class Memory:
    """Memory made and filled by tritonclient, registered under its name."""

    def __init__(self, client: Any, size: int) -> None:
        self.name = f"penstock-{uuid.uuid4().hex}"
        self.handle = shm.create_shared_memory_region(self.name, f"/{self.name}", size)
        client.register_system_shared_memory(self.name, f"/{self.name}", size)

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *_: object) -> None:
        shm.destroy_shared_memory_region(self.handle)


def _simple(module: ModuleType, memory: Memory, count: int) -> tuple[list[Any], list[Any]]:
    """Both inputs in the first half of the memory, both outputs in the second."""
    size = 4 * count
    inputs, outputs = [], []
    for number in range(2):
        tensor = module.InferInput(f"INPUT{number}", [1, count], "INT32")
        tensor.set_shared_memory(memory.name, size, offset=number * size)
        inputs.append(tensor)
        wanted = module.InferRequestedOutput(f"OUTPUT{number}")
        wanted.set_shared_memory(memory.name, size, offset=(2 + number) * size)
        outputs.append(wanted)
    return inputs, outputs


@pytest.mark.contract("V-18")
@pytest.mark.contract("HI-19", "GP-11", "CC-04", "CC-07", "CC-08")
@pytest.mark.parametrize("count", [16, 100_000])
def test_inputs_and_outputs_stay_in_shared_memory(door: Door, count: int) -> None:
    """Over and over: the first times a model process may be sent copies of what it then maps."""
    module, client = door
    with Memory(client, 16 * count) as memory:
        inputs, outputs = _simple(module, memory, count)
        for turn in range(8):
            a, b = np.arange(count, dtype=np.int32) + turn, np.full(count, turn, np.int32)
            shm.set_shared_memory_region(memory.handle, [a, b])
            client.infer("simple", inputs, outputs=outputs)
            found = shm.get_contents_as_numpy(memory.handle, np.int32, [4, count])
            np.testing.assert_array_equal(found[2], a + b)
            np.testing.assert_array_equal(found[3], a - b)
        client.unregister_system_shared_memory(memory.name)


def test_strings_stay_in_shared_memory(door: Door) -> None:
    module, client = door
    with Memory(client, 256) as memory:
        values = serialize_byte_tensor(np.array([b"a", b"", b"xyz"], np.object_))
        shm.set_shared_memory_region(memory.handle, [values])
        tensor = module.InferInput("IN", [1, 3], "BYTES")
        tensor.set_shared_memory(memory.name, 16)
        wanted = module.InferRequestedOutput("OUT")
        wanted.set_shared_memory(memory.name, 64, offset=128)
        client.infer("strings", [tensor], outputs=[wanted])
        found = shm.get_contents_as_numpy(memory.handle, np.object_, [3], offset=128)
        assert found.tolist() == [b"a", b"", b"xyz"]
        client.unregister_system_shared_memory(memory.name)


@pytest.mark.contract("GP-11")
def test_streams_take_and_give_shared_memory(server: Served) -> None:
    responses: SimpleQueue[Any] = SimpleQueue()
    with (
        grpcclient.InferenceServerClient(server.grpc) as client,
        Memory(client, 64) as memory,
    ):
        client.start_stream(lambda result, error: responses.put((result, error)))
        shm.set_shared_memory_region(memory.handle, [np.array([5, 6], np.int32)])
        tensors = [grpcclient.InferInput("IN", [2], "INT32")]
        tensors[0].set_shared_memory(memory.name, 8)
        for name, count in (("DELAY", 2), ("WAIT", 1)):
            tensors.append(grpcclient.InferInput(name, [count], "UINT32"))
            tensors[-1].set_data_from_numpy(np.zeros(count, np.uint32))
        wanted = grpcclient.InferRequestedOutput("OUT")
        wanted.set_shared_memory(memory.name, 4, offset=32)
        client.async_stream_infer("repeat", tensors, outputs=[wanted])
        for _ in range(2):
            result, error = responses.get(timeout=60)
            assert error is None
            assert result.get_output("OUT").shape == [1]
        found = shm.get_contents_as_numpy(memory.handle, np.int32, [1], offset=32)
        assert found.tolist() == [6]
        client.stop_stream()
        client.unregister_system_shared_memory(memory.name)
        assert memory.name not in _regions(client)


@pytest.mark.contract("G-16")
def test_memory_is_unregistered_after_the_request_that_uses_it(server: Served, door: Door) -> None:
    """It is mapped and listed until then; its name may be taken again afterwards."""
    module, client = door
    name = module.__name__.rpartition(".")[2]
    executing = server.log.parent / "models" / "simple" / "1" / "running"
    with Memory(client, 256) as memory, ThreadPoolExecutor(1) as pool:
        shm.set_shared_memory_region(memory.handle, [np.array([400, 2], np.int32)])
        inputs, outputs = _simple(module, memory, 1)
        running = pool.submit(_infer_slowly, module, getattr(server, name), inputs, outputs)
        wait_until(executing.exists)
        client.unregister_system_shared_memory(memory.name)
        assert memory.name in _regions(client)
        assert not running.done()
        executing.unlink()
        running.result(60)
        found = shm.get_contents_as_numpy(memory.handle, np.int32, [4])
        assert found.tolist()[2:] == [402, 398]
        wait_until(lambda: memory.name not in _regions(client))
        client.register_system_shared_memory(memory.name, f"/{memory.name}", 256)
        client.unregister_system_shared_memory(memory.name)
        assert memory.name not in _regions(client)


def _infer_slowly(module: ModuleType, target: str, *arguments: Any) -> None:
    inputs, outputs = arguments
    with module.InferenceServerClient(target) as client:  # this thread's own
        client.infer("simple", inputs, outputs=outputs, request_id="slow")


def _regions(client: Any) -> set[str]:
    status = client.get_system_shared_memory_status()
    listed = status if isinstance(status, list) else list(status.regions.values())
    return {region["name"] if isinstance(region, dict) else region.name for region in listed}


def test_memory_that_was_cut_off_harms_nobody(door: Door) -> None:
    module, client = door
    with Memory(client, 8192) as memory:
        inputs, outputs = _simple(module, memory, 512)
        client.infer("simple", inputs, outputs=outputs)
        os.truncate(f"/dev/shm/{memory.name}", 4096)
        with pytest.raises(InferenceServerException, match="larger than what is left"):
            client.infer("simple", inputs, outputs=outputs)
        assert client.is_server_live()
        client.unregister_system_shared_memory(memory.name)
        assert memory.name not in _regions(client)


def test_memory_is_given_back(server: Served, door: Door) -> None:
    """Neither the server nor the model process maps what is unregistered."""
    module, client = door
    with Memory(client, 1600) as memory:
        inputs, outputs = _simple(module, memory, 100)
        for _ in range(4):
            client.infer("simple", inputs, outputs=outputs)
        assert _mapped_by(server, memory.name)
        client.unregister_system_shared_memory(memory.name)
        wait_until(lambda: not _mapped_by(server, memory.name))


def _mapped_by(server: Served, name: str) -> list[int]:
    processes = [server.process.pid, *server.family()]
    return [pid for pid in processes if name.encode() in read_of(pid, "maps")]


@pytest.mark.contract("X-08", "SEC-05")
def test_memory_is_not_shared_unless_the_server_allows_it(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    text = "Client shared memory is disabled"
    with (
        serving(tmp_path / "models", tmp_path / "log") as server,
        grpcclient.InferenceServerClient(server.grpc) as rpc,
        httpclient.InferenceServerClient(server.http) as http,
        posix_memory() as memory,
    ):
        with pytest.raises(InferenceServerException, match=text) as refused:
            rpc.register_system_shared_memory("a", memory.key, 64)
        assert refused.value.status() == "StatusCode.UNIMPLEMENTED"
        with pytest.raises(InferenceServerException, match=text) as refused:
            http.register_system_shared_memory("a", memory.key, 64)
        assert refused.value.status() == "501"
        assert http.get_system_shared_memory_status() == []
