"""Load tools of others, run for seconds over the demo by the files in `loadtest/`.

What each says of itself in its report has to be without errors, and so has what the server counts:
a tool that looks at statuses alone takes a stream with an error inside for a good one.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from google.protobuf import json_format
from loadtest.tools import genai_perf, ghz, k6, locust, soak
from loadtest.tools.outcome import Outcome, server_counts
from loadtest.tools.report import Addresses, Run

from harness.serving import Served, serving
from penstock.protocol import grpc_service_pb2 as pb
from programs.places import find

_LOCUST = importlib.util.find_spec("locust") is not None
_SECONDS = 2.0
_FIGURES = (
    "Time To First Token (ms)",
    "Time To Second Token (ms)",
    "Inter Token Latency (ms)",
    "Request Latency (ms)",
    "Output Sequence Length (tokens)",
    "Input Sequence Length (tokens)",
    "Output Token Throughput (tokens/sec)",
    "Output Token Throughput Per User (tokens/sec/user)",
    "Request Throughput (per sec)",
)
"""Figures that genai-perf has of a stream."""
_PROMPTS = ("The file is open", "A context manager closes it")


def _missing(program: str, how: str) -> pytest.MarkDecorator:
    return pytest.mark.needs(program, "" if find(program) else f"{program} is not installed: {how}")


@pytest.mark.parametrize(
    ("run", "kinds"),
    [
        pytest.param(ghz.run, 2, id="ghz", marks=_missing("ghz", "make tools")),
        pytest.param(
            k6.run, 6, id="k6", marks=_missing("k6", "python tests/programs/install.py k6")
        ),
        pytest.param(
            locust.run,
            2,  # of five, which users choose at random
            id="locust",
            marks=pytest.mark.needs("locust", "" if _LOCUST else "locust is not installed"),
        ),
    ],
)
def test_load_tool_sees_no_error_and_the_server_counts_none(
    server: Served, tmp_path: Path, run: Run, kinds: int
) -> None:
    before = server_counts(server.http)
    outcomes = list(run(Addresses(server.grpc, server.http), _SECONDS, tmp_path))
    after = server_counts(server.http)
    print(outcomes)
    assert len(outcomes) >= kinds
    assert [(each.name, each.messages) for each in outcomes if each.errors] == []
    assert [each.name for each in outcomes if not each.calls] == []
    assert after.failed == before.failed
    assert after.success - before.success >= _requests(outcomes)


@_missing("ghz", "make tools")
@pytest.mark.needs("locust", "" if _LOCUST else "locust is not installed")
def test_soak_with_clients_that_leave_or_read_slowly_leaves_nothing(tmp_path: Path) -> None:
    # One user of each kind.
    found = soak.soak(8.0, 4.0, tmp_path, users=6, pause=0.25)
    print(found.as_markdown())
    assert found.faults == []
    names = [each.name for each in found.outcomes]
    assert "locust: grpc ModelInfer, cancelled" in names
    assert "locust: grpc ModelInfer, embeddings" in names
    assert "locust: grpc ModelStreamInfer, read slowly" in names
    assert set(found.failed) >= {"CANCELED"}


def _requests(outcomes: list[Outcome]) -> int:
    """How many requests there were: some rows are further times of those of another."""
    times = ("ttft", "gap", "first response", "between responses")
    return sum(each.calls for each in outcomes if not each.name.endswith(times))


@pytest.mark.contract("GP2-04", "GP2-05", "GP2-07")
@_missing("perf_analyzer", "make tools")
@_missing("genai-perf", "make tools")
@pytest.mark.parametrize(
    ("name", "prompts"),
    [
        ("gRPC, decoupled, at a rate", ()),  # it makes them up
        ("chat", _PROMPTS),
        ("embeddings", _PROMPTS),
    ],
)
def test_genai_perf_has_figures_of_the_demo(
    server: Served, tmp_path: Path, name: str, prompts: tuple[str, ...]
) -> None:
    addresses = Addresses(server.grpc, server.http)
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps({"text": prompt}) + "\n" for prompt in prompts))
    profile = genai_perf.run_profile(name, addresses, 10, tmp_path, file if prompts else None)
    assert profile.means["Request Count (count)"] == 10
    assert profile.means["Request Latency (ms)"] > 0
    if name != "embeddings":
        assert profile.means["Output Sequence Length (tokens)"] > 0
    if "decoupled" in name:
        assert [figure for figure in _FIGURES if not profile.means[figure] > 0] == []
        assert profile.p99s["Time To First Token (ms)"] > 0
        goodput = profile.means["Request Throughput (per sec)"]
        assert profile.means["Request Goodput (per sec)"] == goodput > 0
    if name == "chat":  # whose bound no request can keep
        assert profile.means["Request Goodput (per sec)"] == 0


@pytest.mark.contract("GP2-08")
@_missing("perf_analyzer", "make tools")
@_missing("genai-perf", "make tools")
def test_genai_perf_asks_in_tensors_of_tensorrt_llm(demo: Path, tmp_path: Path) -> None:
    """Answers have as many tokens as it wants: it sends `max_tokens` and `min_length`."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "tiny_llm").symlink_to(demo / "tiny_llm")
    genai_perf.write_trtllm(tmp_path / "models")
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps({"text": prompt}) + "\n" for prompt in _PROMPTS))
    with serving(tmp_path / "models", tmp_path / "log") as server:
        addresses = Addresses(server.grpc, server.http)
        name = genai_perf.TENSORS_OF_TRTLLM
        profile = genai_perf.run_profile(name, addresses, 10, tmp_path, file)
    assert profile.means["Request Count (count)"] == 10
    assert profile.means["Output Sequence Length (tokens)"] > 0


@_missing("ghz", "make tools")
def test_ghz_with_a_model_that_is_missing_is_seen_by_its_report(
    server: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends with status 0 all the same."""
    config = json.loads((ghz.CONFIGS / "unary.json").read_text())
    config["data"]["model_name"] = "missing"
    (tmp_path / "unary.json").write_text(json.dumps(config))
    for name in ("stream.toml", "stream-data.json"):
        (tmp_path / name).write_bytes((ghz.CONFIGS / name).read_bytes())
    monkeypatch.setattr(ghz, "CONFIGS", tmp_path)
    unary, _ = ghz.run(Addresses(server.grpc, server.http), 0.5, tmp_path)
    assert unary.errors == unary.calls > 0
    assert "unknown model: 'missing'" in unary.messages[0]


def test_seconds_of_a_report_of_ghz_begin_with_its_first_call(tmp_path: Path) -> None:
    """Its date is that of its end."""
    calls = [
        {
            "timestamp": f"2026-01-02T03:04:0{second}.123456789Z",
            "latency": 2_000_000,
            "status": "OK",
        }
        for second in (1, 1, 2, 3)
    ]
    report = {
        "name": "calls",
        "date": "2026-01-02T03:04:05Z",
        "total": 4_000_000_000,
        "details": calls,
        "statusCodeDistribution": {"OK": 4},
    }
    (tmp_path / "report.json").write_text(json.dumps(report))
    found = ghz.read_report(tmp_path / "report.json")
    assert found.rate == [(0, 2.0), (1, 1.0)]


def test_requests_of_ghz_are_requests() -> None:
    """Its files may not rot where it is not installed."""
    data = json.loads((ghz.CONFIGS / "unary.json").read_text())["data"]
    assert json_format.ParseDict(data, pb.ModelInferRequest()).model_name == "simple"
    text = (ghz.CONFIGS / "stream-data.json").read_text()
    message = json.loads(text.replace(text[text.index("{{ index") : text.index("mod .Req")], "{{("))
    assert [each["name"] for each in message["inputs"]] == [
        "text_input",
        "stream",
        "sampling_parameters",
    ]
