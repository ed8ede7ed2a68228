"""Steps of `make test`, side by side: checks, installations, the compiled build and all tests.

    python tests/whole_run.py [STEP ...]    only these, and what they need

What waits for the network or for servers leaves the processor to others, so each step begins as
soon as those that it needs have ended. A step's output is printed when it ends, and a failure cuts
no other short.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from sysconfig import get_config_var, get_path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build"
RECORD = BUILD / "contract-run.jsonl"
"""What became of the tests of the contract."""
PYTHON = str(ROOT / ".venv/bin/python")
COMPILED_PYTHON = str(ROOT / ".venv-compiled/bin/python")
_GENERATED = "*/penstock/protocol/*,*/penstock/demo/assets/*"
_SERVICE, _BACKENDS = "service/penstock", "backends/penstock_backends"
_CLIENT = "client/penstock_client"
_AT_ONCE = 3
"""Steps: with more, engines take minutes to start on two cores; with fewer, the cores idle."""
_BY_TWO = ("-n", "2", "--dist", "loadfile")
_SLOWEST = 20
_MOST_SHOWN = 1500
"""Characters of a failure that are shown again at the end."""

CONFORMANCE = ("conformance", "top/live", "tracing/served")
"""Tests of whole servers, which are compiled where that is possible."""
SIMULATION = "simulated/test_seeds.py"
"""Ten thousand worlds. Their coverage is not measured: they run what other tests run, too."""
COMPILED = (
    "gateway/connections",
    "gateway/inference",
    "gateway/limits",
    "hosting/fuzzing",
    "hosting/parent/process",
    "http1",
    "http2",
    "in_process",
    "packaging/test_compiled.py",
    "perf",
    "rpc",
)
"""What else is tested compiled: what speaks by sockets and processes, and what strangers feed."""
MEASURED: Mapping[str, tuple[str, ...]] = {
    "vllm": ("backends/vllm",),
    "commands": ("app", "cli", "commands", "perf", "tune"),
    "backends": ("backends",),
    "clients": ("client", "clients", "demo", "gateway", "http1", "in_process"),
    "others": ("",),
}
"""Run -> its tests, less those of the runs before it. The coverage of each is measured."""
_SOURCES = {"vllm": (_BACKENDS,), "backends": (_SERVICE, _BACKENDS)}
"""Run -> the packages whose coverage it measures, where those are not the service and the client:
each takes seconds of processor time to be made ready."""


@dataclass(frozen=True, slots=True)
class Step:
    """A command, and the names of the steps that it needs."""

    name: str
    command: Sequence[str]
    needs: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)


def steps() -> list[Step]:
    """All steps, in the order in which they begin: those that take long come first."""
    installs = [Step("tools", _make("tools")), Step("install-vllm", _make("vllm"))]
    before = [Step("checks", _make("check"), variables=_record()), *installs]
    python, variables = PYTHON, {}
    if _can_compile():
        before = [Step("compile", _make(".venv-compiled/.test")), *before]
        python, variables = COMPILED_PYTHON, {"PENSTOCK_TEST_COMPILED": "1"}
    else:
        print(
            "==> nothing is tested compiled: there is no C compiler here, or no headers of Python"
        )
    needs = [step.name for step in installs]
    vllm, *runs, others = [Step(name, _measured(name), needs, _record()) for name in MEASURED]
    needs = [step.name for step in before if step.name != "checks"]
    servers = Step("conformance", _conformance(python), needs, {**_record(), **variables})
    compiled = [Step("compiled", _compiled(), needs, variables)] if variables else []
    # Compiling takes one core for minutes: two steps that do not wait for it come before those.
    # The shortest are the last, with two processes each: little runs beside their ends.
    seeds = Step("simulation", _pytest(PYTHON, "simulation", "-n", "2", *_folders([SIMULATION])))
    return [*before, vllm, others, servers, *runs, *compiled, seeds]


def _compiled() -> list[str]:
    # Properties have few examples here: they have many in the other runs, of the same code.
    which = ["-m", "not conformance", "--hypothesis-profile=quick"]
    return _pytest(COMPILED_PYTHON, "compiled", *which, *_BY_TWO, *_folders(COMPILED))


def _conformance(python: str) -> list[str]:
    return _pytest(python, "conformance", "-m", "not gate", *_BY_TWO, *_folders(CONFORMANCE))


def _measured(name: str) -> list[str]:
    names = list(MEASURED)
    before = [folder for run in names[: names.index(name)] for folder in MEASURED[run]]
    leaves_out = [f"--ignore={folder}" for folder in _folders([*before, SIMULATION])]
    which = ["-m", "not (conformance or gate)", *_folders(MEASURED[name]), *leaves_out]
    # SlipCover takes its probes out of code that it has seen run: coverage.py took as long as the
    # tests themselves, before Python 3.12.
    measure = ["-m", "slipcover", "--branch", "--immediate", "--json", "--out", _coverage(name)]
    sources = _SOURCES.get(name, (_SERVICE, _CLIENT))
    packages = ["--source", ",".join(sources), "--omit", _GENERATED]
    return [PYTHON, *measure, *packages, *_pytest(PYTHON, name, *which)[1:]]


def _coverage(name: str) -> str:
    return str(BUILD / f"coverage-{name}.json")


def _folders(names: Sequence[str]) -> list[str]:
    return [f"tests/{name}" for name in names]


def _pytest(python: str, name: str, *arguments: str) -> list[str]:
    return [python, "-m", "pytest", "-q", "-rs", f"--junitxml={_report(name)}", *arguments]


def _report(name: str) -> Path:
    return BUILD / f"{name}.xml"


def _make(target: str) -> list[str]:
    return ["make", "--no-print-directory", target]


def _record() -> dict[str, str]:
    return {"PENSTOCK_CONTRACT_RUN": str(RECORD)}


def _can_compile() -> bool:
    compiler = os.environ.get("CC") or get_config_var("CC") or "cc"
    headers = Path(get_path("include"), "Python.h")
    return shutil.which(compiler.split()[0]) is not None and headers.exists()


class SideBySide:
    """Steps of which some run at the same time, each in a thread that waits for its process."""

    def __init__(self, all_steps: Sequence[Step], logs: Path = BUILD) -> None:
        self._steps = all_steps
        self._logs = logs
        self._began = time.monotonic()
        self._well: dict[str, Future[bool]] = {step.name: Future() for step in all_steps}

    def run(self) -> list[str]:
        """Run all; the names of those that failed, or could not begin for that."""
        # What a step needs comes before it, so that no step waits for one that has not begun.
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            well = list(pool.map(self._in_turn, self._steps))
        return [step.name for step, ended in zip(self._steps, well, strict=True) if not ended]

    def _in_turn(self, step: Step) -> bool:
        well = False
        try:
            well = all(self._well[name].result() for name in step.needs) and self._process(step)
        finally:
            self._well[step.name].set_result(well)
        return well

    def _process(self, step: Step) -> bool:
        log = self._logs / f"{step.name}.log"
        variables = {**os.environ, **step.variables}
        begins = time.monotonic()
        with log.open("wb") as output:
            command = subprocess.Popen(
                step.command, cwd=ROOT, env=variables, stdout=output, stderr=subprocess.STDOUT
            )
            _, status, used = os.wait4(command.pid, 0)
            command.returncode = os.waitstatus_to_exitcode(status)
        times = (
            f"from {begins - self._began:.0f} s to {time.monotonic() - self._began:.0f} s, "
            f"{used.ru_utime + used.ru_stime:.0f} s of processor time"
        )
        print(f"==> {step.name}: {times}\n{log.read_text(errors='replace')}", end="", flush=True)
        return command.returncode == 0


def _finish() -> bool:
    """Compare the contract and the coverage with what must be; whether both hold."""
    print("==> contract and coverage", flush=True)
    parts = [_coverage(name) for name in MEASURED]
    merge = ["-m", "slipcover", "--json", "--out", str(BUILD / "coverage.json"), "--merge", *parts]
    merged = subprocess.run([PYTHON, *merge], cwd=ROOT, stdout=subprocess.DEVNULL)  # a line a file
    checks = (["tests/conformance/contract.py", "--check"], ["tests/coverage_floors.py"])
    checked = [subprocess.run([PYTHON, *check], cwd=ROOT) for check in checks]
    return not any(run.returncode for run in (merged, *checked))


def _say_slowest(suites: Sequence[ElementTree.Element]) -> None:
    tests = [test for suite in suites for test in suite.iter("testcase")]
    print(f"==> the {_SLOWEST} slowest tests, in seconds")
    for test in sorted(tests, key=lambda test: -float(test.attrib["time"]))[:_SLOWEST]:
        print(
            f"{float(test.attrib['time']):6.1f} {test.attrib['classname']}::{test.attrib['name']}"
        )


def _say_failed(suites: Sequence[ElementTree.Element]) -> None:
    """Name what failed once more, at the end: of a long output that is often all that is kept."""
    for suite in suites:
        for test in suite.iter("testcase"):
            for found in [*test.findall("failure"), *test.findall("error")]:
                print(f"==> failed: {test.attrib['classname']}::{test.attrib['name']}")
                print(found.attrib.get("message", "")[:_MOST_SHOWN])


def _say_sum(suites: Sequence[ElementTree.Element]) -> None:
    def sum_of(*names: str) -> int:
        return sum(int(suite.attrib[name]) for suite in suites for name in names)

    failed, skipped = sum_of("failures", "errors"), sum_of("skipped")
    print(f"{sum_of('tests') - failed - skipped} passed, {failed} failed, {skipped} skipped")


def _chosen(names: Sequence[str]) -> list[Step]:
    every = {step.name: step for step in steps()}
    needed = {need for name in names for need in every[name].needs}
    return [step for step in every.values() if not names or step.name in {*names, *needed}]


def main(names: Sequence[str]) -> int:
    """Run the steps of these names, without names all. The status is 1 if anything failed."""
    BUILD.mkdir(exist_ok=True)
    for old in (RECORD, *BUILD.glob("*.xml"), *BUILD.glob("coverage*")):
        old.unlink(missing_ok=True)
    failed = SideBySide(_chosen(names)).run()
    finished = bool(names) or _finish()
    reports = [ElementTree.parse(file).getroot() for file in BUILD.glob("*.xml")]
    suites = [suite for report in reports for suite in report.iter("testsuite")]
    _say_slowest(suites)
    _say_failed(suites)
    for name in failed:
        print(f"==> the step '{name}' failed")
    _say_sum(suites)
    return 0 if finished and not failed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
