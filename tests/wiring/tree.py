"""A copy of the working tree, with wires laid into its code, and its tests."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

_LAID = {
    "service/penstock/__init__.py": "_wiring.lay()",
    "service/penstock/app/__init__.py": "run = _wiring.door(run)",
    "service/penstock/gateway/app.py": "open_gateway = _wiring.door(open_gateway)\n"
    "open_openai = _wiring.door(open_openai)",
    "service/penstock/gateway/metrics.py": "open_metrics = _wiring.door(open_metrics)",
    "service/penstock/gateway/clouds/vertex.py": "open_vertex = _wiring.door(open_vertex)",
    "service/penstock/gateway/clouds/sagemaker.py": "open_sagemaker = _wiring.door(open_sagemaker)",
    "service/penstock/rpc/server.py": "open_grpc = _wiring.door(open_grpc)",
    "service/penstock/rpc/native/transport.py": "open_native = _wiring.door(open_native)",
    "service/penstock/rpc/grpcio/transport.py": "open_grpcio = _wiring.door(open_grpcio)",
    "service/penstock/in_process/running_server.py": "RunningServer.core = property("
    "_wiring.door(RunningServer.core.fget))",
    "service/penstock/in_process/__init__.py": "import sys\n"
    "from penstock.in_process import frontend\n"
    "for _module in (sys.modules[__name__], frontend):\n    _wiring.lay_arguments(_module)",
}
"""What is put at the end of a module of the copy."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A copy with an environment of its own, whose files are those of the original one."""

    root: Path

    @property
    def _told(self) -> Path:
        return self.root / "build/told"

    def lay(self) -> None:
        """Make the copy anew."""
        shutil.rmtree(self.root, ignore_errors=True)
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True).stdout
        for name in filter(None, names.decode().split("\0")):
            source, target = ROOT / name, self.root / name
            if source.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target)
        self._lay_environment()
        shutil.copy2(Path(__file__).with_name("hook.py"), self.root / "service/penstock/_wiring.py")
        for name, line in _LAID.items():
            text = (self.root / name).read_text()
            (self.root / name).write_text(f"{text}\nfrom penstock import _wiring\n\n{line}\n")

    def _lay_environment(self) -> None:
        """Link the environment, with the paths in its small files led to the copy."""
        here, there = ROOT / ".venv", self.root / ".venv"
        subprocess.run(["cp", "-al", here, there], check=True)
        packages = there.glob("lib/python*/site-packages/*.pth")
        for file in (*packages, *(there / "bin").iterdir()):
            if file.is_symlink() or not file.is_file():
                continue
            text = file.read_bytes()
            if len(text) < 1 << 16 and bytes(ROOT) in text:
                mode = file.stat().st_mode
                file.unlink()  # a link of the file, which stays what it is
                file.write_bytes(text.replace(bytes(ROOT), bytes(self.root)))
                file.chmod(mode)

    def test(self, *arguments: str, timeout: float) -> None:
        """The tests of the copy, with nothing cut; they are ended where they take too long."""
        variables = {"PENSTOCK_WIRING_TOLD": str(self._told)}
        self._pytest(["timeout", "-k", "10", str(timeout)], arguments, variables)

    def fork(self, jobs: Path, files: Sequence[str]) -> None:
        """The tests of some files for each of the jobs, as `forks.py` has it."""
        variables = {"PENSTOCK_WIRING_JOBS": str(jobs)}
        self._pytest([], ["-s", "-p", "tests.wiring.forks", *files], variables)

    def _pytest(
        self, before: Sequence[str], arguments: Sequence[str], variables: Mapping[str, str]
    ) -> None:
        python = str(self.root / ".venv/bin/python")
        plugins = ["-p", "penstock._wiring", "-p", "no:cacheprovider"]
        command = [*before, python, "-m", "pytest", "-q", "--tb=short", *plugins, *arguments]
        with (self.root / "log").open("ab") as log:
            subprocess.run(
                command,
                cwd=self.root,
                env={**os.environ, **variables},
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def told(self) -> Iterator[Sequence[str]]:
        """The lines of all processes since the last `forget`."""
        for file in sorted(self._told.glob("*.jsonl")):
            yield from map(json.loads, file.read_text().splitlines())

    def forget(self) -> None:
        """Forget what was told."""
        shutil.rmtree(self._told, ignore_errors=True)
        self._told.mkdir(parents=True)
