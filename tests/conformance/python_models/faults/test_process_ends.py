"""What becomes of requests whose process ends, and of whoever asks meanwhile."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from conformance.python_models.client import Client, Order, RefusedError, floats
from conformance.python_models.faults.models import EXPLICIT, Victim, faulty
from harness.serving import Served, alive, suspend, wait_until

MODELS = faulty("victim", "hurried", "pair", "streamer", "caller")
ARGUMENTS = EXPLICIT

_ENDS = {
    "exits": "exited with status 3",
    "crashes": "was killed by signal 11 (SIGSEGV)",
    "aborts": "was killed by signal 6 (SIGABRT)",
    "kills_itself": "was killed by signal 9 (SIGKILL)",
    "leaves_a_fork": "was killed by signal 9 (SIGKILL)",
    "closes_files": "closed its link to the server",
    "closes_files_and_answers": "closed its link to the server",
    "cannot_write": "closed its link to the server",
}


@pytest.mark.contract("PY-07", "PY-08")
@pytest.mark.parametrize("way", _ENDS)
def test_model_that_ends_fails_its_request_and_comes_back(
    client: Client, victim: Victim, way: str
) -> None:
    former = victim.pid()
    victim.hold()
    error = client.refusal("victim", request_id=way)
    assert (error.code, error.message) == ("UNAVAILABLE", victim.down(_ENDS[way]))
    assert not client.ready("victim")
    assert not client.call("is_server_ready")
    assert client.infer("witness")["Y"].tolist() == [1]
    assert client.refusal("victim").message == victim.down(_ENDS[way])
    victim.release()
    assert client.call("is_server_ready")
    assert victim.pid() != former
    wait_until(lambda: not alive(former))


@pytest.mark.contract("N-11")
@pytest.mark.parametrize("way", ["crashes", "aborts", "kills_itself"])
def test_log_names_the_signal(client: Client, server: Served, victim: Victim, way: str) -> None:
    victim.hold()
    client.begin("victim", request_id=way).error()
    victim.release()
    line = f"instance '{victim.instance}': its model process {_ENDS[way]}; it is being restarted"
    wait_until(lambda: line in server.log.read_text())


@pytest.mark.parametrize("way", ["loops", "waits"])
def test_execution_has_its_time(client: Client, hurried: Victim, way: str) -> None:
    hurried.hold()
    error = client.refusal("hurried", request_id=way)
    reason = "was stopped since an execution took longer than its limit of 2 s"
    assert (error.code, error.message) == ("UNAVAILABLE", hurried.down(reason))
    hurried.release()
    assert hurried.pid()


def test_no_request_is_executed_twice(client: Client, victim: Victim) -> None:
    """Quick executions are sent ahead, and answers may be lost that were not on their way."""
    asked = [(n, "notes_and_exits" if n in (60, 90) else "notes") for n in range(200)]
    orders = [client.begin("victim", {"X": floats(n)}, request_id=id) for n, id in asked]
    answered = {n for n, order in enumerate(orders) if _answered(order)}
    noted = [int(word) for word in victim.path("noted").read_text().split()]
    assert len(noted) == len(set(noted))
    assert answered == set(noted) & answered
    assert answered.isdisjoint({60, 90})


def _answered(order: Order) -> bool:
    try:
        order.result()
    except RefusedError:
        return False
    return True


def test_idle_process_that_is_killed_comes_back(client: Client, victim: Victim) -> None:
    former = victim.pid()
    victim.hold()
    os.kill(former, signal.SIGKILL)
    wait_until(lambda: not client.ready("victim"))
    assert "SIGKILL" in client.refusal("victim").message
    victim.release()
    assert victim.pid() != former


def test_process_killed_while_it_streams_ends_the_streams_with_the_reason(
    client: Client, repository: Path
) -> None:
    streamer = Victim(client, repository, "streamer")
    streams = [client.stream("streamer", request_id=f"s{n}") for n in range(2)]
    pid = {int(next(iter(stream))["Y"][0]) for stream in streams for _ in range(3)}.pop()
    os.kill(pid, signal.SIGKILL)
    messages = {stream.error().message for stream in streams}
    assert messages == {streamer.down("was killed by signal 9 (SIGKILL)")}
    wait_until(lambda: client.ready("streamer"))
    stream = client.stream("streamer", request_id="again")
    assert stream.result()["Y"][0] != pid
    stream.cancel()


@pytest.mark.contract("PY-07", "PY-42")
def test_another_instance_goes_on(client: Client, repository: Path) -> None:
    pair = Victim(client, repository, "pair")
    pids = {pair.pid() for _ in range(4)}
    assert len(pids) == 2
    pair.hold()
    killed = pids.pop()
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: not client.ready("pair"))
    assert {pair.pid() for _ in range(4)} == pids
    pair.release()
    assert len({pair.pid() for _ in range(4)}) == 2


@pytest.mark.contract("W-10")
def test_process_that_stops_reading_is_not_ready_and_runs_out_of_time(
    client: Client, hurried: Victim
) -> None:
    suspend(hurried.pid())
    assert not client.ready("hurried")
    hurried.hold()
    error = client.refusal("hurried", {"X": floats(*range(1 << 18))})
    assert "longer than its limit of 2 s" in error.message
    hurried.release()


def test_model_that_fails_too_often_stays_down_and_says_why(client: Client, victim: Victim) -> None:
    for _ in range(4):
        assert "; it is being restarted" in client.refusal("victim", request_id="exits").message
        wait_until(lambda: client.ready("victim"))
    last = client.refusal("victim", request_id="exits").message
    down = "its model process exited with status 3; it failed 5 times in 60 s and stays down"
    assert last == f"model 'victim', instance 'victim_0_0': {down}"
    assert client.refusal("victim").message == last
    assert not client.ready("victim")
    client.load("victim")
    assert victim.pid()


def test_model_that_cannot_be_started_again_says_why(client: Client, victim: Victim) -> None:
    victim.path("broken").touch()
    client.refusal("victim", request_id="exits")
    wait_until(lambda: "stays down" in client.refusal("victim").message)
    message = client.refusal("victim").message
    assert "could not be started again: ValueError: no second start\n\nAt:\n" in message
    assert f"{victim.path('1/model.py')}(28): initialize\n" in message
    victim.path("broken").unlink()
    client.load("victim")
    assert victim.pid()


def test_caller_of_a_model_that_ends_is_told(client: Client, victim: Victim) -> None:
    client.load("caller")
    error = client.refusal("caller", request_id="victim exits")
    assert error.message == "told: " + victim.down("exited with status 3")


def test_death_of_a_caller_cancels_what_it_asked_for(client: Client, repository: Path) -> None:
    gone = Victim(client, repository, "streamer").path("asked")
    client.load("caller")
    assert "exited with status 3" in client.refusal("caller", request_id="streamer asked").message
    wait_until(gone.exists)
