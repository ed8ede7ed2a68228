"""A server that runs already: variants are loaded into it, and in the end what it had before."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tritonclient.grpc as grpcclient

from harness.serving import PROGRAM, Served, serving
from penstock_client.perf.errors import Status
from penstock_client.tune.command import run
from tune.conftest import CONFIG, Ran

pytestmark = pytest.mark.slow

Remote = Callable[..., Ran]
_WITH_GPUS = (str(Path(__file__).parents[1] / "observability" / "server_with_gpus.py"),)
"""A program whose two GPUs a fake driver tells of: 80 GiB, of which 45 to 65 are used."""


@pytest.fixture
def served(models: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Served]:
    """A server with explicit model control and no model, of another program if there is a param."""
    program = getattr(request, "param", PROGRAM)
    explicit = "--model-control-mode=explicit"
    with serving(models, tmp_path / "log", explicit, program=program) as server:
        yield server


@pytest.fixture
def remote(served: Served, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Remote:
    """Runs `penstock tune sleepy` on it, with short loads."""

    def remote(*words: str) -> Ran:
        output = tmp_path / "tuned"
        at = ["--remote", served.grpc, "--remote-http", served.http]
        at += ["--remote-metrics", served.metrics, "--output", str(output)]
        short = ["-c", "4", "--duration", "0.3", "--warmup", "0.1", "--rounds", "0"]
        status = run(["sleepy", *at, *short, *words])
        printed = capfd.readouterr()
        return Ran(status, output / "sleepy", printed.out + printed.err)

    return remote


def _config(served: Served) -> dict[str, Any]:
    with grpcclient.InferenceServerClient(served.grpc) as client:
        found: dict[str, Any] = client.get_model_config("sleepy", as_json=True)["config"]
    return found


@pytest.mark.contract("MA-16", "MA-12")
def test_variants_are_loaded_into_a_server_that_runs(remote: Remote, served: Served) -> None:
    ran = remote("--instances", "1-2", "--mode", "brute")
    assert ran.status == 0, ran.printed
    assert ran.results["best"]["changes"] == {"instances": 2}
    variants = ran.results["variants"]
    assert variants[0]["loads"][0]["memory_bytes"] is None
    assert "metrics" in variants[1]["loads"][0]["server"]
    assert _config(served)["instance_group"][0]["count"] == 1
    text = (ran.folder / "best" / "config.pbtxt").read_text()
    assert "count: 2" in text
    assert "#" not in text


@pytest.mark.contract("MA-16")
@pytest.mark.parametrize("served", [_WITH_GPUS], indirect=True)
def test_memory_of_gpus_is_that_of_the_metrics_page(remote: Remote) -> None:
    ran = remote("--instances", "1", "--mode", "brute")
    assert ran.status == 0, ran.printed
    (variant,) = ran.results["variants"]
    assert 90 < variant["loads"][0]["gpu_memory_bytes"] / (1 << 30) < 130


def test_what_is_written_in_a_repository_is_kept(remote: Remote, models: Path) -> None:
    words = ["--model-repository", str(models), "--instances", "1-2", "--mode", "brute"]
    ran = remote(*words, "--", "-i", "http")
    assert ran.status == 0, ran.printed
    text = (ran.folder / "best" / "config.pbtxt").read_text()
    assert text.startswith(CONFIG.partition("instance_group")[0])
    assert (models / "sleepy" / "config.pbtxt").read_text() == CONFIG


@pytest.mark.contract("MA-12")
def test_a_variant_that_does_not_load_leaves_the_server_as_it_was(
    remote: Remote, served: Served
) -> None:
    ran = remote("--parameter", "mode=refuse", "--mode", "brute")
    assert ran.status == 0, ran.printed
    assert "this mode is refused" in ran.results["variants"][1]["failure"]
    assert "parameters" not in _config(served)


def test_a_server_that_goes_away_leaves_the_results_until_then(
    remote: Remote, served: Served, tmp_path: Path
) -> None:
    record = tmp_path / "tuned" / "sleepy" / "measurements.jsonl"
    ended = threading.Event()

    def kill() -> None:
        while not ended.wait(0.02):
            if record.exists() and record.read_text().count('"figures"') >= 2:
                served.process.kill()
                return

    killer = threading.Thread(target=kill)
    killer.start()
    ran = remote("--instances", "1-4", "--mode", "brute")
    ended.set()
    killer.join()
    assert ran.status == Status.FAILURES
    assert "these are the results until then" in ran.printed
    assert len(json.loads((ran.folder / "results.json").read_text())["variants"]) >= 2
    assert "Traceback" not in ran.printed


@pytest.mark.contract("MA-12")
def test_a_server_without_explicit_control_refuses(
    models: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with serving(models, tmp_path / "log") as served:
        status = run(["sleepy", "--remote", served.grpc, "--output", str(tmp_path / "tuned")])
    assert status == Status.UNREACHABLE
    told = capfd.readouterr().err
    assert "model 'sleepy' cannot be measured as it is: " in told
    assert "explicit model load" in told


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--remote", "127.0.0.1:1"], "no answer over gRPC from 127.0.0.1:1: connection refused"),
        (["--remote", "a b"], "'a b' is not an address"),
        (["--remote", "x", "--env", "A=1"], "--env is for servers that penstock tune starts"),
        (["--remote", "x", "--max-memory", "1GiB"], "--max-memory is for servers that"),
        (["--remote", "x", "--objective", "cpu"], "--objective cpu is for servers that"),
        (["--remote-http", "x", "--model-repository", "."], "--remote-http is for --remote"),
    ],
)
def test_what_cannot_be_had_of_a_server_elsewhere_is_told(
    words: list[str], text: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    try:
        status = run(["m", "--output", str(tmp_path), *words])
    except SystemExit as ended:
        status = int(ended.code or 0)
    assert status == Status.UNREACHABLE
    assert text in capfd.readouterr().err
