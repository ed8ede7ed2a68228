"""Where instances are: by `gpus` and `kind`, and by the flags of the server."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

from gpu.machine import on_gpu
from gpu.serving import FLAGS, PATIENCE, GpuServer
from harness.serving import serving

pytestmark = on_gpu()
_X = np.zeros((2, 4), np.float32)


@pytest.mark.contract("B-11")
@pytest.mark.parametrize(
    ("model", "device"),
    [
        ("on_gpu", 0),
        ("on_any_gpu", 0),
        ("on_auto", 0),
        ("on_cpu", -1),
        ("on_its_choice", -1),  # whose inputs stay on the CPU
    ],
)
def test_instance_is_where_its_group_says(server: GpuServer, model: str, device: int) -> None:
    server.load(model)
    assert set(server.answer(model, _X).ravel()) == {device}


def test_automatic_kind_is_a_gpu_in_the_configuration(server: GpuServer) -> None:
    server.load("on_auto")
    config = server.client.get_model_config("on_auto", as_json=True)["config"]
    [group] = config["instance_group"]
    assert (group["kind"], group["gpus"][0]) == ("KIND_GPU", 0)


def test_gpu_that_is_not_there_is_refused_by_its_number(server: GpuServer) -> None:
    with pytest.raises(InferenceServerException, match="99"):
        server.client.load_model("on_missing", client_timeout=PATIENCE)


def test_load_is_refused_while_more_memory_is_in_use(repository: Path, tmp_path: Path) -> None:
    flags = *FLAGS, "--model-load-gpu-limit=0:0.000001"
    with (
        serving(repository, tmp_path / "log", *flags) as served,
        grpcclient.InferenceServerClient(served.grpc) as client,
    ):
        with pytest.raises(InferenceServerException, match="limit"):
            client.load_model("on_gpu", client_timeout=PATIENCE)
        client.load_model("on_cpu", client_timeout=PATIENCE)
        assert client.is_model_ready("on_cpu")


@pytest.mark.parametrize("flag", ["--cpu-only", "--min-supported-compute-capability=99"])
def test_gpu_that_is_not_to_be_used_is_not(repository: Path, tmp_path: Path, flag: str) -> None:
    with (
        serving(repository, tmp_path / "log", *FLAGS, flag) as served,
        grpcclient.InferenceServerClient(served.grpc) as client,
    ):
        server = GpuServer(served, repository, client)
        server.load("on_auto")
        assert set(server.answer("on_auto", _X).ravel()) == {-1}
