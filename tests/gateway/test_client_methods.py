"""Triton's HTTP clients do on a started server all that their gRPC siblings do."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from queue import SimpleQueue
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.grpc.aio
import tritonclient.http
import tritonclient.http.aio
from tritonclient.utils import InferenceServerException

from harness.posix_memory import posix_memory
from harness.serving import Served, serving

pytestmark = pytest.mark.slow

_CONFIG = """
backend: "identity"
input [{ name: "IN" data_type: TYPE_FP32 dims: [-1] }]
output [{ name: "OUT" data_type: TYPE_FP32 dims: [-1] }]
"""
_STREAMS = {"start_stream", "stop_stream", "async_stream_infer", "stream_infer"}
"""What HTTP has no counterpart of: generate_stream is no call of these clients."""

_LOCAL = {"close", "plugin", "register_plugin", "unregister_plugin"}
"""What asks no server."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    (folder / "models" / "numbers" / "1").mkdir(parents=True)
    (folder / "models" / "numbers" / "config.pbtxt").write_text(_CONFIG)
    allowed = (f"--allow-{what}=true" for what in ("client-shm", "trace-control", "log-control"))
    arguments = "--model-control-mode=explicit", *allowed
    with serving(folder / "models", folder / "log", *arguments) as server:
        yield server


def _methods(module: ModuleType) -> set[str]:
    client = module.InferenceServerClient
    return {name for name, _ in inspect.getmembers(client, callable) if name[0] != "_"}


@pytest.mark.contract("CC-02")
@pytest.mark.parametrize(
    ("http", "grpc"),
    [
        (tritonclient.http, tritonclient.grpc),
        (tritonclient.http.aio, tritonclient.grpc.aio),
    ],
)
def test_every_method_of_the_grpc_client_is_tried(http: ModuleType, grpc: ModuleType) -> None:
    methods = _methods(grpc) - _STREAMS - _LOCAL
    assert methods <= _methods(http)
    assert methods - {"infer", "async_infer", _LAST} == set(_CALLS)


_CALLS: dict[str, tuple[tuple[Any, ...], str]] = {
    "is_server_live": ((), "True"),
    "is_server_ready": ((), "True"),
    "get_server_metadata": ((), "model_repository(unload_dependents)"),
    "get_model_repository_index": ((), "'numbers'"),
    "load_model": (("numbers",), "None"),
    "is_model_ready": (("numbers",), "True"),
    "get_model_metadata": (("numbers",), "'platform': 'identity'"),
    "get_model_config": (("numbers",), "'data_type': 'TYPE_FP32'"),
    "get_inference_statistics": (("numbers",), "'inference_stats'"),
    "update_trace_settings": (("numbers", {"trace_rate": "7"}), "7"),
    "get_trace_settings": (("numbers",), "7"),
    "update_log_settings": (({"log_verbose_level": 1},), "1"),
    "get_log_settings": ((), "'log_verbose_level'"),
    "register_system_shared_memory": (("region", "KEY", 8), "None"),
    "get_system_shared_memory_status": ((), "'region'"),
    "unregister_system_shared_memory": (("region",), "None"),
    "register_cuda_shared_memory": (("gpu", b"AAAA", 0, 8), "InferenceServerException"),
    "get_cuda_shared_memory_status": ((), ""),
    "unregister_cuda_shared_memory": (("gpu",), "None"),
}
"""The arguments of each call, in this order, and a part of the result or the error's type."""

_LAST = "unload_model"


@pytest.mark.contract("CC-02", "CC-03")
@pytest.mark.parametrize(
    "module",
    [tritonclient.http, tritonclient.http.aio, tritonclient.grpc, tritonclient.grpc.aio],
    ids=lambda module: module.__name__.removeprefix("tritonclient."),
)
async def test_every_method_is_answered(module: ModuleType, server: Served) -> None:
    """With the same answers over both protocols; a handle of no GPU's is refused."""
    client = module.InferenceServerClient(
        server.http if ".http" in module.__name__ else server.grpc
    )
    try:
        with posix_memory(8) as memory:
            for name, (arguments, expected) in _CALLS.items():
                arguments = tuple(memory.key if each == "KEY" else each for each in arguments)
                assert expected in await _asked(client, name, arguments), name
        assert await _inferred(module, client) == [[1.5, 2.5]] * (
            1 + hasattr(client, "async_infer")
        )
        assert await _asked(client, _LAST, ("numbers",)) == "None"
    finally:
        await _settled(client.close())


async def _asked(client: Any, name: str, arguments: tuple[Any, ...]) -> str:
    method = getattr(client, name)
    # Over gRPC it is a message unless one asks for what HTTP brings.
    options = {"as_json": True} if "as_json" in inspect.signature(method).parameters else {}
    try:
        return str(await _settled(method(*arguments, **options)))
    except InferenceServerException as error:
        return type(error).__name__


async def _settled(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


async def _inferred(module: ModuleType, client: Any) -> list[Any]:
    """What comes back of an inference, and of one that is waited for later if there is that."""
    tensor = module.InferInput("IN", [2], "FP32")
    tensor.set_data_from_numpy(np.array([1.5, 2.5], np.float32))
    results = [await _settled(client.infer("numbers", [tensor]))]
    if module is tritonclient.http:
        results.append(client.async_infer("numbers", [tensor]).get_result())
    elif module is tritonclient.grpc:
        answers: SimpleQueue[Any] = SimpleQueue()
        client.async_infer("numbers", [tensor], lambda result, error: answers.put(result))
        results.append(answers.get(timeout=20))
    return [result.as_numpy("OUT").tolist() for result in results]
