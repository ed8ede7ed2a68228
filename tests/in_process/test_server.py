"""An in-process server: start and stop, models, options, and what is wrong with these."""

from __future__ import annotations

import gc
import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock.in_process as tritonserver
from harness.client_models import LENGTH
from harness.serving import wait_until
from penstock.in_process.options import settings_of
from penstock.server.server import InferenceServer

_IDENTITY = """
backend: "identity"
input { name: "X" data_type: TYPE_FP32 dims: [ -1 ] }
output { name: "Y" data_type: TYPE_FP32 dims: [ -1 ] }
"""


def _write(repository: Path, name: str = "same", config: str = _IDENTITY) -> Path:
    (repository / name / "1").mkdir(parents=True)
    (repository / name / "config.pbtxt").write_text(config)
    return repository


def _threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name == "penstock-server"]


@pytest.mark.contract("API-01")
def test_a_server_says_what_it_is_and_has(server: tritonserver.Server) -> None:
    assert server.live()
    assert server.ready()
    assert server.metadata()["name"] == "inside"
    models = server.models(exclude_not_ready=True)
    assert str(models["copy", 1]) == "{'name': 'copy', 'version': 1, 'state': 'READY'}"
    assert models["copy"].version == -1
    for unknown in ("nope", ("nope", 1)):
        with pytest.raises(KeyError, match="Unknown Model"):
            models[unknown]


@pytest.mark.contract("API-03", "API-13")
def test_a_model_says_what_it_is(server: tritonserver.Server) -> None:
    copy, repeat = server.model("copy"), server.model("repeat", 1)
    assert copy.ready()
    assert not server.model("nope").ready()
    assert copy.metadata()["inputs"][1] == {
        "name": "NUMBERS",
        "datatype": "FP32",
        "shape": [-1, 2, -1],
    }
    assert copy.batch_properties() == tritonserver.ModelBatchFlag.FIRST_DIM
    assert repeat.batch_properties() == tritonserver.ModelBatchFlag.UNKNOWN
    assert copy.transaction_properties() == tritonserver.ModelTxnPropertyFlag.ONE_TO_ONE
    assert repeat.transaction_properties() == tritonserver.ModelTxnPropertyFlag.DECOUPLED
    assert copy.config()["max_batch_size"] == 8
    with pytest.raises(tritonserver.InvalidArgumentError, match="version 2 not supported"):
        copy.config(2)
    (counted,) = copy.statistics()["model_stats"]
    assert set(counted["inference_stats"]["queue"]) == {"count", "ns"}
    json.dumps([server.metadata(), copy.metadata(), copy.config(), copy.statistics()])


@pytest.mark.contract("API-01")
@pytest.mark.slow
def test_models_are_loaded_and_unloaded(server: tritonserver.Server) -> None:
    source = LENGTH.replace("1.0", "7.0").encode()
    model = server.load("length", {"config": "{}", "file:1/model.py": source})
    (response,) = model.infer(inputs={"TEXT": ["a"]})
    assert response.outputs["VECTOR"].size == 8
    server.unload(model, wait_until_unloaded=True)
    assert not model.ready()
    assert server.models()["length", 1].state == "UNAVAILABLE"
    assert server.models()["length", 1].reason == "unloaded"
    assert server.load("length").ready()
    with pytest.raises(tritonserver.InvalidArgumentError, match="'n' must be a string"):
        server.load("length", {"n": 1})
    with pytest.raises(tritonserver.TritonError, match="failed to load 'nope'"):
        server.load("nope")


@pytest.mark.contract("API-01")
def test_parts_of_an_ensemble_are_left_unless_the_caller_names_them(
    server: tritonserver.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, bool]] = []

    async def unload(core: InferenceServer, name: str, unload_dependents: bool) -> None:
        asked.append((name, unload_dependents))

    monkeypatch.setattr(InferenceServer, "unload", unload)
    server.unload("whole")
    server.unload("whole", unload_dependents=True)
    assert asked == [("whole", False), ("whole", True)]


@pytest.mark.contract("API-01")
def test_the_end_of_an_unload_is_waited_for_only_where_the_caller_says_so(
    server: tritonserver.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[bool] = []

    async def unload(core: InferenceServer, name: str, unload_dependents: bool) -> None:
        pass

    async def index(core: InferenceServer, ready: bool) -> tuple[()]:
        looked.append(ready)
        return ()

    monkeypatch.setattr(InferenceServer, "unload", unload)
    monkeypatch.setattr(InferenceServer, "index", index)
    server.unload("copy")
    assert looked == []
    server.unload("copy", wait_until_unloaded=True)
    assert looked == [False]


@pytest.mark.contract("API-01", "API-08")
def test_repositories_come_and_go(server: tritonserver.Server, tmp_path: Path) -> None:
    path = str(_write(tmp_path))
    server.register_model_repository(path)
    with pytest.raises(tritonserver.AlreadyExistsError):
        server.register_model_repository(path)
    assert server.load("same").ready()
    server.unload("same")
    server.unregister_model_repository(path)
    assert "same" not in {name for name, _ in server.models()}
    with pytest.raises(tritonserver.InvalidArgumentError, match="repository not found"):
        server.unregister_model_repository(path)
    with pytest.raises(tritonserver.InternalError, match="failed to stat"):
        server.register_model_repository("/no/such/folder")


@pytest.mark.contract("API-01")
def test_models_that_are_not_ready_are_left_out_where_asked(
    server: tritonserver.Server, tmp_path: Path
) -> None:
    path = str(_write(tmp_path))
    server.register_model_repository(path)
    assert "same" in {name for name, _ in server.models()}
    assert "same" not in {name for name, _ in server.models(exclude_not_ready=True)}
    server.unregister_model_repository(path)


@pytest.mark.contract("API-01", "M-17")
def test_models_of_a_repository_may_have_other_names(
    server: tritonserver.Server, tmp_path: Path
) -> None:
    path = str(_write(tmp_path))
    server.register_model_repository(path, {"same": "other"})
    assert server.load("other").ready()
    assert "same" not in {name for name, _ in server.models()}


@pytest.mark.slow
@pytest.mark.contract("API-01", "API-09")
def test_the_page_has_metrics_of_the_host_too(server: tritonserver.Server) -> None:
    family = tritonserver.MetricFamily(tritonserver.MetricKind.COUNTER, "host_jobs", "Jobs")
    metric = tritonserver.Metric(family, {"kind": "short"})
    metric.increment(2)
    page = server.metrics()
    assert 'nv_inference_request_success{model="copy",version="1"}' in page
    assert 'host_jobs{kind="short"} 2' in page
    assert (metric.value, metric.kind) == (2, tritonserver.MetricKind.COUNTER)
    with pytest.raises(tritonserver.TritonError, match="monotonically"):
        metric.increment(-1)
    with pytest.raises(tritonserver.TritonError, match="does not support Set"):
        metric.set_value(1)
    with pytest.raises(tritonserver.InvalidArgumentError, match="different type"):
        tritonserver.MetricFamily(tritonserver.MetricKind.GAUGE, "host_jobs", "")
    del metric, family
    gc.collect()
    assert "host_jobs" not in server.metrics()
    gauge = tritonserver.MetricFamily(tritonserver.MetricKind.GAUGE, "host_size", "Size")
    size = tritonserver.Metric(gauge)
    size.set_value(3)
    assert "host_size 3" in server.metrics()
    with pytest.raises(tritonserver.InvalidArgumentError):
        server.metrics("json")  # type: ignore[arg-type]


@pytest.mark.contract("API-01")
def test_a_server_that_has_not_started_does_nothing() -> None:
    server = tritonserver.Server()
    asked: list[Any] = [server.ready, server.models, server.stop, server.metrics]
    asked += [lambda: server.model("m"), lambda: server.load("m"), server.poll_model_repository]
    for ask in asked:
        with pytest.raises(tritonserver.InvalidArgumentError, match="Server not started"):
            ask()


@pytest.mark.contract("API-01", "API-02")
def test_start_and_stop_leave_nothing_behind(tmp_path: Path) -> None:
    before = len(_threads())
    server = tritonserver.Server(model_repository=str(_write(tmp_path)), metrics=False)
    assert server.start(wait_until_ready=True, timeout=20) is server
    with pytest.raises(tritonserver.InvalidArgumentError, match="already started"):
        server.start()
    with pytest.raises(tritonserver.UnsupportedError, match="metrics"):
        server.metrics()
    with pytest.raises(tritonserver.UnavailableError, match="not allowed"):
        server.load("same")
    with pytest.raises(tritonserver.UnavailableError, match="polling"):
        server.poll_model_repository()
    model = server.model("same")
    server.stop()
    with pytest.raises(tritonserver.InvalidArgumentError, match="not started"):
        model.infer(inputs={"X": [1.0]})
    assert len(_threads()) == before
    with server:
        assert server.ready()
    assert len(_threads()) == before


@pytest.mark.slow
def test_a_server_that_nobody_has_stops(tmp_path: Path) -> None:
    before = len(_threads())
    server = tritonserver.Server(model_repository=str(_write(tmp_path))).start()
    assert len(_threads()) == before + 1
    del server
    gc.collect()
    assert len(_threads()) == before


def test_a_server_that_its_own_thread_has_last_stops(tmp_path: Path) -> None:
    before = len(_threads())
    held = [tritonserver.Server(model_repository=str(_write(tmp_path))).start()]
    held[0]._started().loop.call(held.clear)
    wait_until(lambda: len(_threads()) == before)
    assert held == []


@pytest.mark.contract("API-01")
def test_changes_on_disk_are_polled(tmp_path: Path) -> None:
    mode = tritonserver.ModelControlMode.POLL
    with tritonserver.Server(model_repository=[str(tmp_path)], model_control_mode=mode) as server:
        _write(tmp_path, "new")
        server.poll_model_repository()
        assert server.model("new").ready()


def test_a_server_without_its_repository_is_neither_live_nor_ready(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    with tritonserver.Server(model_repository=missing, exit_on_error=False).start() as server:
        assert not server.live()
        assert not server.ready()


def test_a_model_that_fails_ends_the_start(tmp_path: Path) -> None:
    repository = str(_write(tmp_path, "broken", 'backend: "nope"'))
    before = len(_threads())
    with pytest.raises(tritonserver.InternalError, match="failed to load all models"):
        tritonserver.Server(model_repository=repository).start()
    assert len(_threads()) == before
    server = tritonserver.Server(model_repository=repository, exit_on_error=False).start()
    assert not server.ready()
    server.stop()
    with pytest.raises(tritonserver.UnavailableError, match="Timeout before ready"):
        tritonserver.Server(model_repository=repository, exit_on_error=False).start(
            wait_until_ready=True, timeout=0.1
        )


@pytest.mark.contract("API-02", "API-08")
@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"server_id": 1}, TypeError),
        ({"model_repository": 1}, TypeError),
        ({"strict_readiness": "yes"}, TypeError),
        ({"exit_timeout": "long"}, TypeError),
        ({"model_repository": None}, tritonserver.InvalidArgumentError),
        ({}, tritonserver.InvalidArgumentError),
        ({"model_repository": "/no/such/folder"}, tritonserver.InternalError),
        ({"model_repository": "/tmp", "startup_models": ["a"]}, tritonserver.InvalidArgumentError),
        ({"model_repository": "/tmp", "exit_timeout": -1.5}, tritonserver.InvalidArgumentError),
        ({"model_repository": "/tmp", "log_file": "/no/such/file"}, tritonserver.InternalError),
    ],
)
def test_wrong_options_are_refused_at_the_start(options: dict[str, Any], error: Any) -> None:
    with pytest.raises(error):
        tritonserver.Server(**options).start()


@pytest.mark.contract("API-02")
def test_options_are_the_flags_of_the_server() -> None:
    options = tritonserver.Options(
        model_repository=["a", "b"],
        server_id="x",
        model_control_mode=tritonserver.ModelControlMode.EXPLICIT,
        startup_models=["m"],
        strict_model_config=True,
        rate_limiter_mode=tritonserver.RateLimitMode.EXEC_COUNT,
        rate_limiter_resources=[tritonserver.RateLimiterResource("R", 2, 1)],
        cuda_memory_pool_sizes={0: 5},
        cache_config={"local": {"size": 1024}},
        exit_timeout=3,
        strict_readiness=False,
        log_verbose=1,
        log_format=tritonserver.LogFormat.ISO8601,
        cpu_metrics=False,
        backend_configuration={"python": {"shm-region-prefix-name": "p"}},
        host_policies={"gpu_0": {"numa-node": "0"}},
        model_load_device_limits=[
            tritonserver.ModelLoadDeviceLimit(tritonserver.InstanceGroupKind.GPU, 0, 0.5)
        ],
        metrics_configuration={"": {"summary_latencies": "true"}},
    )
    settings = settings_of(options)
    repository, log = settings.repository, settings.logging
    assert (repository.paths, repository.startup_models) == (("a", "b"), ("m",))
    assert (repository.control_mode, repository.auto_complete_config) == ("explicit", False)
    assert (settings.rate_limit.mode, settings.rate_limit.resources[0].count) == (
        "execution_count",
        2,
    )
    assert (settings.id, settings.exit_timeout_seconds) == ("x", 3)
    assert (log.verbose, log.info, log.warning, log.error) == (1, True, True, True)
    assert (log.format, settings.metrics.cpu) == ("ISO8601", False)
    assert settings.cache.config == {"local": {"size": "1024"}}
    assert settings.backends.config["python"] == {"shm-region-prefix-name": "p"}
    assert settings.devices.load_limits == {0: 0.5}
    assert not settings.http.enabled
    assert not settings.grpc.enabled


def test_limits_are_for_gpus() -> None:
    limit = tritonserver.ModelLoadDeviceLimit(tritonserver.InstanceGroupKind.CPU, 0, 0.5)
    with pytest.raises(tritonserver.InvalidArgumentError, match="for GPUs"):
        settings_of(tritonserver.Options(model_repository="a", model_load_device_limits=[limit]))


@pytest.mark.usefixtures("log_as_it_was")
def test_the_log_goes_to_its_file(tmp_path: Path) -> None:
    log = tmp_path / "log"
    (tmp_path / "models").mkdir()
    options: dict[str, Any] = {"log_info": True, "log_file": str(log)}
    with tritonserver.Server(model_repository=str(_write(tmp_path / "models")), **options):
        pass
    assert "same" in log.read_text()


def test_the_environment_keeps_the_server_from_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    options = tritonserver.Options(model_repository="a")
    assert not settings_of(options).devices.cpu_only
    monkeypatch.setenv("TRITON_SERVER_CPU_ONLY", "1")
    assert settings_of(options).devices.cpu_only


def test_two_servers_of_one_process_have_models_of_their_own(tmp_path: Path) -> None:
    first, second = (str(_write(tmp_path / name, f"of_{name}")) for name in ("one", "two"))
    with (
        tritonserver.Server(model_repository=first) as one,
        tritonserver.Server(model_repository=second) as two,
    ):
        for server, name, other in ((one, "of_one", "of_two"), (two, "of_two", "of_one")):
            (response,) = server.model(name).infer(inputs={"X": np.array([7], np.float32)})
            assert np.from_dlpack(response.outputs["Y"]).tolist() == [7]
            with pytest.raises(KeyError, match="Unknown Model"):
                server.models()[other]
