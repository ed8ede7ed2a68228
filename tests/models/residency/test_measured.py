"""What models really take is measured, counted, and remembered across restarts."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pynvml
import pytest
import tritonclient.grpc as grpcclient

from fakes.nvml import FakeNvml
from harness.serving import Served, serving, wait_until
from models.residency.repository import Repository
from penstock.app.gpus import open_gpus
from penstock.core.config import ModelConfig
from penstock.models.residency.measuring import measured
from penstock.models.sizing.measured import MeasuredSizes, stamped_facts
from penstock.settings import DeviceSettings, MetricsSettings
from penstock.system.process_memory import proportional_bytes, with_descendants

_MB = 1_000_000


def _takes(repository: Repository, name: str, megabytes: int) -> None:
    """A model that takes so much from its start."""
    repository.add(name, min_resident_seconds="0")
    model = repository.path / name / "1" / "model.py"
    model.write_text(
        f"import numpy\nHELD = numpy.ones({megabytes * _MB}, 'u1')\n" + model.read_text()
    )


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "models")


@pytest.fixture
def sizes(tmp_path: Path) -> Path:
    return tmp_path / "state" / "sizes.json"


def _served(
    repository: Repository, log: Path, sizes: Path, budget: int
) -> AbstractContextManager[Served]:
    return serving(
        repository.path,
        log,
        "--model-control-mode=demand",
        f"--memory-budget={budget * _MB}",
        f"--measured-sizes={sizes}",
    )


def _call(served: Served, model: str) -> None:
    tensor = grpcclient.InferInput("X", [1], "FP32")
    tensor.set_data_from_numpy(np.zeros(1, np.float32))
    with grpcclient.InferenceServerClient(served.grpc) as client:
        client.infer(model, [tensor])


def _resident(served: Served) -> dict[str, int]:
    """Megabytes of the budget by model."""
    with urllib.request.urlopen(served.metrics) as answer:
        page = answer.read().decode()
    line = r'^penstock_model_resident_bytes\{model="(\w+)",device="host"\} (\S+)$'
    return {name: int(float(size)) // _MB for name, size in re.findall(line, page, re.MULTILINE)}


def test_a_model_that_takes_more_than_estimated_is_told_and_others_go(
    repository: Repository, tmp_path: Path, sizes: Path
) -> None:
    for name in ("a", "b"):
        _takes(repository, name, 200)
    with _served(repository, tmp_path / "log", sizes, 400) as served:
        _call(served, "a")
        assert 200 <= _resident(served)["a"] < 400
        _call(served, "b")
        wait_until(lambda: len(_resident(served)) == 1)
    assert "more than the 3" in (tmp_path / "log").read_text()
    # It is known at the next start: what does not fit goes before the load, not after it.
    with _served(repository, tmp_path / "log", sizes, 400) as served:
        _call(served, "a")
        assert 200 <= _resident(served)["a"] < 400
        _call(served, "b")
        assert _resident(served).keys() == {"b"}
    assert "more than the" not in (tmp_path / "log").read_text()


def test_a_model_that_takes_less_gives_back(
    repository: Repository, tmp_path: Path, sizes: Path
) -> None:
    repository.add("small")
    repository.add_weights("small", 300 * _MB)
    with _served(repository, tmp_path / "log", sizes, 400) as served:
        _call(served, "small")
        assert 0 < _resident(served)["small"] < 100
    assert "'small' version 1 takes 3" in (tmp_path / "log").read_text()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"form": 7}', '{"form": 1, "sizes": {"a": 1}}'])
def test_a_foreign_file_is_ignored_with_one_line(
    sizes: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    sizes.parent.mkdir()
    sizes.write_text(text)
    found = MeasuredSizes(sizes)
    found.read()
    assert found.of("a") is None
    assert [record.getMessage().startswith("measured sizes in") for record in caplog.records] == [
        True
    ]
    found.keep("a", {"host": 7})
    found.write()
    again = MeasuredSizes(sizes)
    again.read()
    assert again.of("a") == {"host": 7}


def test_the_models_measured_last_are_kept(sizes: Path) -> None:
    found = MeasuredSizes(sizes)
    for number in range(5000):
        found.keep(str(number), {"host": number})
    found.write()
    assert len(json.loads(sizes.read_text())["sizes"]) == 4096
    assert (found.of("0"), found.of("4999")) == (None, {"host": 4999})


def test_a_file_that_cannot_be_written_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    found = MeasuredSizes(tmp_path / "file" / "sizes.json")
    found.keep("a", {"host": 1})
    found.write()
    assert "are not kept in" in caplog.text


def test_changed_files_have_another_stamp(repository: Repository) -> None:
    repository.add("a")
    folder = repository.path / "a" / "1"
    config = ModelConfig(name="a", backend="python")
    first = stamped_facts(config, 1, folder).stamp
    assert stamped_facts(config, 1, folder).stamp == first
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "model.pyc").touch()
    assert stamped_facts(config, 1, folder).stamp == first
    (folder / "model.py").write_text("other")
    assert stamped_facts(config, 1, folder).stamp != first


def test_processes_and_their_children_are_measured() -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
    try:
        wait_until(lambda: len(with_descendants(child.pid)) == 2)
        family = with_descendants(child.pid)
        both, one = proportional_bytes(family), proportional_bytes([child.pid])
        assert both is not None
        assert one is not None
        assert both > one > 1 << 20
        inner = max(family)
        found = measured([child.pid], lambda: {0: {inner: 5, 1: 9}, 1: {1: 9}})
        assert found["gpu0"] == 5
        assert found.keys() == {"host", "gpu0"}
    finally:
        child.communicate(b"\n")
    assert proportional_bytes([child.pid]) is None


def test_gpus_tell_their_processes() -> None:
    with open_gpus(DeviceSettings(), MetricsSettings(), [0, 1], FakeNvml()) as gpus:
        assert gpus.processes() == {0: {10: 100, 11: 7}, 1: {10: 200, 12: 7}}
        assert gpus.memory() == {0: 8000, 1: 8000}


def test_the_driver_has_what_is_asked_of_it() -> None:
    """The names of NVIDIA's package: of its function, and of the fields of its answer."""
    assert callable(pynvml.nvmlDeviceGetComputeRunningProcesses)
    fields = {name for name, *_ in pynvml.c_nvmlProcessInfo_v3_t._fields_}
    assert {"pid", "usedGpuMemory"} <= fields
