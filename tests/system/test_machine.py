"""CPU and memory usage of the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.system.machine import MachineUsage


class _Machine:
    """A machine whose files and clock a test sets."""

    def __init__(self, proc: Path) -> None:
        self.now = 0.0
        self._proc = proc
        self.tick(user=100, idle=300)
        self.usage = MachineUsage(2.0, proc, lambda: self.now)

    def later(self, now: float, user: int, idle: int) -> None:
        self.now = now
        self.tick(user, idle)

    def tick(self, user: int, idle: int) -> None:
        (self._proc / "stat").write_text(f"cpu  {user} 0 0 {idle} 0 0 0 0 7 7\ncpu0 1 2 3\n")


@pytest.fixture
def machine(tmp_path: Path) -> _Machine:
    return _Machine(tmp_path)


def test_utilization_is_that_since_it_was_last_asked_for(machine: _Machine) -> None:
    machine.later(10.0, user=130, idle=310)
    assert machine.usage.utilization() == 0.75
    machine.later(20.0, user=140, idle=340)
    assert machine.usage.utilization() == 0.25


def test_asking_again_at_once_gives_the_same(machine: _Machine) -> None:
    machine.later(10.0, user=130, idle=310)
    machine.usage.utilization()
    machine.later(11.0, user=230, idle=310)
    assert machine.usage.utilization() == 0.75


def test_unreadable_values_are_zero(tmp_path: Path) -> None:
    usage = MachineUsage(0.0, tmp_path)
    assert (usage.utilization(), usage.memory()) == (0.0, (0, 0))


@pytest.mark.contract("ME-26")
def test_this_machine_has_memory() -> None:
    used, total = MachineUsage().memory()
    assert 0 < used < total


@pytest.mark.contract("CL-35", "ME-26")
def test_memory_is_read_again_after_the_interval(machine: _Machine, tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 4 kB\nMemAvailable: 3 kB\n")
    assert machine.usage.memory() == (1024, 4096)
    (tmp_path / "meminfo").write_text("MemTotal: 4 kB\nMemAvailable: 2 kB\n")
    machine.now = 1.9
    assert machine.usage.memory() == (1024, 4096)
    machine.now = 2.0
    assert machine.usage.memory() == (2048, 4096)
