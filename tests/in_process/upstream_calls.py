"""A script with the calls that Triton's own examples and tests make of its in-process API.

    python -m penstock.in_process upstream_calls.py REPOSITORY

prints a line `ok NAME` for each group of calls. Nothing in it is Penstock's; the repository has the
model of `every_type.py`. The calls are those of `test_api.py` (core), of `test_kserve.py` (server)
and of the tutorials, in words of our own.
"""

# mypy: ignore-errors
# A file as users write them, against modules that are there only when it runs.
from __future__ import annotations

import asyncio
import gc
import json
import queue
import sys
import urllib.request

import numpy
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
import tritonserver
from tritonfrontend import KServeGrpc, KServeHttp, Metrics

NUMBERS = numpy.linspace(0, 1, 100, dtype=numpy.float16).reshape(1, 100)
FLAGS = numpy.arange(100).reshape(1, 100) % 3 == 0
INPUTS = {"fp16_input": NUMBERS, "bool_input": FLAGS}
ANY_PORT = {"address": "127.0.0.1", "port": 0}


def options(repository):
    return tritonserver.Options(
        server_id="TestServer",
        model_repository=repository,
        model_control_mode=tritonserver.ModelControlMode.EXPLICIT,
        strict_model_config=False,
        exit_on_error=True,
        exit_timeout=5,
    )


def load(server, decoupled=False):
    parameters = {"decoupled": {"string_value": str(decoupled)}}
    config = json.dumps({"backend": "python", "parameters": parameters})
    return server.load("every_type", {"config": config})


def same(response):
    """Whether the outputs are what `INPUTS` are."""
    outputs = {
        name: numpy.from_dlpack(response.outputs[name.replace("input", "output")])
        for name in INPUTS
    }
    return all(numpy.array_equal(outputs[name], value) for name, value in INPUTS.items())


def start_errors(repository):
    with pytest.raises(tritonserver.InvalidArgumentError):
        tritonserver.Server().ready()
    for wrong in ({"server_id": 1}, {"model_repository": 1}):
        with pytest.raises(TypeError):
            tritonserver.Server(**wrong).start()
    with pytest.raises(tritonserver.InternalError):
        tritonserver.Server(model_repository="foo").start()
    with pytest.raises(tritonserver.InvalidArgumentError):
        tritonserver.Server(model_repository=None).start()
    assert issubclass(tritonserver.InternalError, tritonserver.TritonError)


def tensors(_):
    owner = numpy.ones(1 << 16)
    tensor = tritonserver.Tensor.from_dlpack(owner)
    assert sys.getrefcount(owner) - 1 == 2
    view = numpy.from_dlpack(tensor)
    assert view.ctypes.data == owner.ctypes.data == tensor.data_ptr
    tensor.shape = [2, 1 << 15]
    assert (view.shape, numpy.from_dlpack(tensor).shape) == ((1 << 16,), (2, 1 << 15))
    del tensor, view
    gc.collect()
    assert not [each for each in gc.get_objects() if isinstance(each, tritonserver.Tensor)]


def views(server):
    assert server.live()
    assert server.metadata()["name"] == "TestServer"
    model = load(server)
    told = {"name": "every_type", "version": 1, "state": "READY"}
    assert str(server.models()) == str({("every_type", 1): told})
    assert model.ready()
    assert model.batch_properties() == tritonserver.ModelBatchFlag.UNKNOWN
    assert model.transaction_properties() == tritonserver.ModelTxnPropertyFlag.ONE_TO_ONE
    assert model.metadata()["name"] == model.config()["name"] == "every_type"
    assert model.statistics()["model_stats"][0]["inference_count"] == 0
    assert "nv_inference_request_success" in server.metrics()


def requests(server):
    model = server.models()["every_type"]
    request = model.create_request(request_id="a")
    request.inputs["fp16_input"] = NUMBERS
    assert [each.request_id for each in server.model("every_type").infer(request)] == ["a"]
    assert tritonserver.InferenceRequest(model).inputs == {}
    wanted = {"output_memory_type": "cpu", "raise_on_error": True}
    assert all(same(each) for each in model.infer(inputs=INPUTS, **wanted))
    (response,) = model.infer(inputs={"bool_input": [[True, False]]}, **wanted)
    assert numpy.from_dlpack(response.outputs["bool_output"]).tolist() == [[True, False]]
    for text in ([["hello"]], tritonserver.Tensor.from_string_array([["hello"]])):
        (response,) = model.infer(inputs={"string_input": text})
        assert response.outputs["string_output"].to_string_array()[0][0] == "hello"
    with pytest.raises(tritonserver.InvalidArgumentError):
        list(model.infer(inputs={"string_input": text}, output_memory_type="unsupported"))
    with pytest.raises(tritonserver.NotFoundError):
        server.model("nope").infer(inputs=INPUTS)


def parameters(server):
    given = {"int": 0, "float": 0.5, "bool": False, "string": "test"}
    model = server.model("every_type")
    (response,) = model.infer(inputs=INPUTS, parameters=given)
    assert json.loads(response.outputs["parameters"].to_string_array()[0]) == given
    for wrong in ({"test": 1}, None):
        with pytest.raises(tritonserver.InvalidArgumentError):
            model.infer(inputs=INPUTS, parameters={"invalid": wrong})


def queues(server):
    seen = queue.SimpleQueue()
    model = server.model("every_type")
    sent = [model.infer(inputs=INPUTS, response_queue=seen) for _ in range(2)]
    assert all(same(seen.get(timeout=20)) for _ in sent)
    assert all(same(each) for responses in sent for each in responses)
    assert seen.empty()


def coroutines(server):
    async def ask():
        seen = asyncio.Queue()
        model = server.model("every_type")
        async for response in model.async_infer(inputs=INPUTS, raise_on_error=True):
            assert same(response)
        sent = [model.async_infer(inputs=INPUTS, response_queue=seen) for _ in range(2)]
        assert all([same(await seen.get()) for _ in sent])
        assert all([same(each) for responses in sent async for each in responses])
        assert seen.empty()

    asyncio.run(ask())


def streams(server):
    model = load(server, decoupled=True)
    assert model.transaction_properties() == tritonserver.ModelTxnPropertyFlag.DECOUPLED
    responses = list(model.infer(inputs=INPUTS, parameters={"answers": 3}))
    assert [each.final for each in responses] == [False, False, False, True]
    assert all(same(each) for each in responses[:3])
    left = model.infer(inputs=INPUTS, parameters={"answers": 100_000})
    assert same(next(left))
    left.cancel()
    with pytest.raises(tritonserver.CancelledError):
        list(left)
    load(server)


def metrics(server):
    family = tritonserver.MetricFamily(tritonserver.MetricKind.COUNTER, "jobs", "Jobs done")
    metric = tritonserver.Metric(family, {"kind": "short"})
    metric.increment(2)
    assert metric.value == 2
    with Metrics(server, Metrics.Options(**ANY_PORT)) as service:
        page = urllib.request.urlopen(f"http://127.0.0.1:{service.port}/metrics")
        assert 'jobs{kind="short"} 2' in page.read().decode()


def endpoint_options(server):
    KServeHttp.Options(address="0.0.0.1", port=8080, reuse_port=True, thread_count=16)
    high = KServeGrpc.Grpc_compression_level.HIGH
    KServeGrpc.Options(infer_compression_level=high, infer_allocation_pool_size=12)
    wrong_http = ({"port": -15}, {"thread_count": -5}, {"header_forward_pattern": 10})
    wrong_grpc = (
        {"keepalive_timeout_ms": -20_000},
        {"infer_allocation_pool_size": "big pool"},
        {"server_key": 10},
    )
    for kind, all_wrong in ((KServeHttp, wrong_http), (KServeGrpc, wrong_grpc)):
        for wrong in all_wrong:
            with pytest.raises(ValueError, match=next(iter(wrong))):
                kind.Options(**wrong)
        with pytest.raises(tritonserver.InvalidArgumentError, match="Incorrect type for options"):
            kind.Server(server, {"port": 8001})


def endpoints(server):
    for kind, library in ((KServeHttp, httpclient), (KServeGrpc, grpcclient)):
        with kind.Server(server, kind.Options(**ANY_PORT)) as service:
            client = library.InferenceServerClient(url=f"127.0.0.1:{service.port}")
            assert client.is_server_ready()
            text = numpy.array([["Roger Roger"]], dtype=object)
            wanted = library.InferInput("string_input", text.shape, "BYTES")
            wanted.set_data_from_numpy(text)
            result = client.infer("every_type", inputs=[wanted])
            assert result.as_numpy("string_output")[0][0] == b"Roger Roger"
            with pytest.raises(tritonserver.AlreadyExistsError, match="server is already running"):
                service.start()
            client.close()


def stopped(server):
    service = KServeGrpc(server=server, options=KServeGrpc.Options(**ANY_PORT))
    service.start()
    server.unload("every_type", wait_until_unloaded=True)
    assert not server.model("every_type").ready()
    server.stop()
    service.stop()
    with pytest.raises(tritonserver.InvalidArgumentError):
        server.ready()


def main(repository):
    for check in (start_errors, tensors):
        check(repository)
        print("ok", check.__name__)
    server = tritonserver.Server(options(repository)).start(wait_until_ready=True)
    assert server.ready()
    both = (views, requests, parameters, queues, coroutines, streams, metrics)
    for check in (*both, endpoint_options, endpoints, stopped):
        check(server)
        print("ok", check.__name__)


if __name__ == "__main__":
    main(sys.argv[1])
