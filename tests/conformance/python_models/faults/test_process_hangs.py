"""What becomes of requests whose process hangs, and of whoever asks meanwhile."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from urllib.request import urlopen

import pytest

from conformance.python_models.client import Client, floats
from conformance.python_models.faults.models import EXPLICIT, Victim, faulty
from harness.serving import Served, suspend, wait_until

MODELS = faulty("freezing", "freezing_restarted")
ARGUMENTS = EXPLICIT


@pytest.fixture
def freezing(client: Client, repository: Path) -> Victim:
    """A victim that hangs after a second without a sign."""
    return Victim(client, repository, "freezing")


@pytest.fixture
def restarted(client: Client, repository: Path) -> Victim:
    """A victim that is then started anew."""
    return Victim(client, repository, "freezing_restarted")


def metric(server: Served, name: str, *labels: str) -> float:
    """The sum of a metric of `freezing` over the lines with these labels."""
    with urlopen(server.metrics, timeout=60) as page:
        lines = page.read().decode().splitlines()
    wanted = f'{name}{{model="freezing"', *labels
    return sum(float(line.split()[-1]) for line in lines if all(part in line for part in wanted))


def test_stopped_process_is_not_ready_until_it_goes_on(
    client: Client, server: Served, freezing: Victim
) -> None:
    pid = freezing.pid()
    suspend(pid)
    order = client.begin("freezing", {"X": floats(7)}, request_id="notes")
    wait_until(lambda: metric(server, "penstock_hung_processes") == 1)
    assert metric(server, "penstock_process_hangs_total") == 1
    assert not client.ready("freezing")
    assert not client.call("is_server_ready")
    assert client.infer("witness")["Y"].tolist() == [1]
    assert f"pid {pid}, has given no sign for 1 s while requests wait" in server.log.read_text()
    os.kill(pid, signal.SIGCONT)
    assert order.result()["Y"].tolist() == [7]
    wait_until(lambda: bool(client.ready("freezing")))
    assert "'freezing_0_0': its model process gives signs again" in server.log.read_text()
    assert freezing.pid() == pid


def test_client_may_leave_a_process_that_hangs(
    client: Client, server: Served, freezing: Victim
) -> None:
    """The requests are over at once, in the server too."""
    cancelled = "nv_inference_request_failure", 'reason="CANCELED"'
    before = metric(server, *cancelled)
    pid = freezing.pid()
    suspend(pid)
    orders = [client.begin("freezing") for _ in range(2)]  # one executes, one is in the queue
    wait_until(lambda: not client.ready("freezing"))
    for order in orders:
        order.cancel()
    assert [list(order) for order in orders] == [[], []]
    wait_until(lambda: metric(server, *cancelled) == before + 2)
    os.kill(pid, signal.SIGCONT)
    assert freezing.pid() == pid


def test_hung_process_is_started_anew_on_request(
    client: Client, server: Served, restarted: Victim
) -> None:
    former = restarted.pid()
    restarted.hold()
    suspend(former)
    error = client.refusal(restarted.name)
    reason = "was stopped since it gave no sign for 0.5 s"
    assert (error.code, error.message) == ("UNAVAILABLE", restarted.down(reason))
    restarted.release()
    assert restarted.pid() != former
    assert f"pid {former}, has given no sign for 0.5 s" in server.log.read_text()


def test_code_that_holds_the_lock_of_python_is_hung(
    client: Client, server: Served, freezing: Victim
) -> None:
    order = client.begin("freezing", {"X": floats(3)}, request_id="holds_the_lock")
    wait_until(lambda: not client.ready("freezing"))
    assert order.result()["Y"].tolist() == [3]
    wait_until(lambda: bool(client.ready("freezing")))


def test_code_that_only_computes_is_not_hung(
    client: Client, server: Served, freezing: Victim
) -> None:
    log = server.log.stat().st_size
    assert client.infer("freezing", {"X": floats(2.5)}, request_id="computes")["Y"].tolist() == [
        2.5
    ]
    assert b"no sign" not in server.log.read_bytes()[log:]
