"""Models of the recorded backend: how fast they make tokens, and where a server finds them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from loadtest.llm_repository import INTERVAL
from loadtest.recorded_backend import STEP


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast tokens are made, and whether the reader gets each in a response of its own."""

    name: str
    step: float  # milliseconds, 0 for as fast as readers take them
    merge: bool
    interval: str = ""  # of `penstock.stream_interval_ms`; empty for its default

    def model(self, engine: int) -> str:
        """The model of this pace on one of the engines."""
        return f"recorded-{self.step}-{self.interval or 'default'}-{engine}"

    def config(self) -> str:
        """Its configuration."""
        parameters = {STEP: f"{self.step}"} | ({INTERVAL: self.interval} if self.interval else {})
        entries = (
            f'parameters {{ key: "{key}" value: {{ string_value: "{value}" }} }}\n'
            for key, value in parameters.items()
        )
        return 'backend: "recorded"\n' + "".join(entries)


def installed(site: Path) -> Path:
    """A folder that announces the backend to processes that have it on their path."""
    info = site / "recorded-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: recorded\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[penstock.backends]\nrecorded = loadtest.recorded_backend:RecordedBackend\n"
    )
    return site


def write_models(repository: Path, pace: Pace, engines: int = 1) -> None:
    """Write the models of this pace, one for each engine."""
    for engine in range(engines):
        model = repository / pace.model(engine)
        (model / "1").mkdir(parents=True)
        (model / "config.pbtxt").write_text(pace.config())
