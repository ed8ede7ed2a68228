"""ghz against the demo: unary calls, and token streams by reflection.

python -m loadtest.tools.ghz [--seconds 60]
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from loadtest.tools.outcome import Outcome, from_samples
from loadtest.tools.programs import MORE_SECONDS, ToolError, program, read_json, run_program
from loadtest.tools.report import Addresses, main

_ROOT = Path(__file__).resolve().parents[2]
CONFIGS = _ROOT / "loadtest" / "ghz"
_TIME = re.compile(r"([^.Z+]+?)(\.\d+)?(Z|[+-]\d\d:\d\d)")


def run(addresses: Addresses, seconds: float, folder: Path) -> Iterator[Outcome]:
    """Both configurations, one after the other."""
    yield unary(addresses, seconds, folder)
    yield streams(addresses, seconds, folder)


def unary(addresses: Addresses, seconds: float, folder: Path, *options: str) -> Outcome:
    """Unary calls, with the protos; `options` are further ones of ghz."""
    proto = [f"--proto={_ROOT / 'proto' / 'grpc_service.proto'}"]
    proto += [f"--import-paths={_ROOT / 'proto'}"]
    return _run("unary.json", [*proto, *options], addresses, seconds, folder)


def streams(addresses: Addresses, seconds: float, folder: Path, *options: str) -> Outcome:
    """Token streams, by reflection."""
    data = [f"--data-file={CONFIGS / 'stream-data.json'}"]
    return _run("stream.toml", [*data, *options], addresses, seconds, folder)


def _run(
    config: str, options: list[str], addresses: Addresses, seconds: float, folder: Path
) -> Outcome:
    report = folder / f"ghz-{Path(config).stem}.json"
    report.unlink(missing_ok=True)
    command = [program("ghz"), f"--config={CONFIGS / config}", *options]
    command += [f"--duration={seconds:g}s", f"--output={report}", addresses.grpc]
    done = run_program(command, seconds + MORE_SECONDS)
    if not report.exists():
        raise ToolError(f"no report for {config}: {done.printed[-2000:]}")
    return read_report(report)


def read_report(report: Path) -> Outcome:
    """What a report says: ghz ends with status 0 even when every call has failed."""
    found = read_json(report)
    details = found.get("details") or []
    begun = [_time(each["timestamp"]) for each in details]
    first = min(begun, default=0.0)
    times = [(at - first, each["latency"] / 1e6) for at, each in zip(begun, details, strict=True)]
    errors = [each["error"] or each["status"] for each in details if each["status"] != "OK"]
    good = found["statusCodeDistribution"].get("OK", 0)
    missing = sum(found["statusCodeDistribution"].values()) - good - len(errors)
    errors += ["a call without details failed"] * missing
    return from_samples(found["name"], times, errors, found["total"] / 1e9)


def _time(text: str) -> float:
    """Seconds of a time whose fraction has nine digits."""
    found = _TIME.fullmatch(text)
    if found is None:
        raise ToolError(f"'{text}' is not a time")
    head, fraction, zone = found.groups()
    return datetime.fromisoformat(head + zone.replace("Z", "+00:00")).timestamp() + float(
        f"0{fraction or ''}"
    )


if __name__ == "__main__":
    main("ghz", run)
