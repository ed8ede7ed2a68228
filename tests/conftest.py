"""Fixtures for all tests."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, settings

from conformance.contract_run import VARIABLE, ContractRun
from fakes import InstallBackend
from harness import collected, folder_marks, needs, report_text, time_limits
from harness.posix_memory import PosixMemory, posix_memory
from penstock.shared_memory.registry import Regions

# Examples take, and are made in, as long as a busy machine needs; pytest ends tests that hang.
settings.register_profile("penstock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", settings.get_profile("penstock"), max_examples=20)
settings.load_profile("penstock")


def pytest_configure(config: pytest.Config) -> None:
    """Mark tests by folder, skip what needs something missing, end what hangs, record the
    contract's tests.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # As shells start programs beside others; what tests start would ignore it, too.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.pluginmanager.register(collected)
    config.pluginmanager.register(folder_marks)
    config.pluginmanager.register(needs)
    config.pluginmanager.register(report_text)
    config.pluginmanager.register(time_limits)
    if record := os.environ.get(VARIABLE):
        config.pluginmanager.register(ContractRun(Path(record)))


def pytest_collection() -> None:
    """Collect tests without looking for garbage among them, which takes a tenth of the time."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Look for garbage among what tests make, and not among all the tests as well."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave out what compiled code cannot do by its nature, with the reason."""
    interpreted = item.get_closest_marker("interpreted")
    if interpreted is not None and os.environ.get("PENSTOCK_TEST_COMPILED") == "1":
        pytest.skip(f"not for compiled code: {interpreted.args[0]}")


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Find what the tests of a file left open while it is known which file that is.

    What is left then stays, such as parsed sources: it is not looked through after each file.
    """
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()


@pytest.fixture
def install_backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InstallBackend:
    """Announces an object as a backend, as a distribution installed beside ours would."""

    def install(name: str, backend: object) -> None:
        module = ModuleType("installed_backends")
        module.__dict__["backend"] = backend
        monkeypatch.setitem(sys.modules, module.__name__, module)
        info = tmp_path / "site" / "installed-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: installed\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(
            f"[penstock.backends]\n{name} = {module.__name__}:backend\n"
        )
        monkeypatch.syspath_prepend(info.parent)

    return install


@pytest.fixture
def memory() -> Iterator[PosixMemory]:
    """Shared memory of a client's."""
    with posix_memory() as memory:
        yield memory


@pytest.fixture
def regions(memory: PosixMemory) -> Iterator[Regions]:
    """One region, `r`, of 64 bytes of it."""
    regions = Regions(allowed=True)
    regions.register_system("r", memory.key, 0, 64)
    yield regions
    regions.close()
