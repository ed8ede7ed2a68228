"""The stack of `make observe`: every expression is asked of a real Prometheus that scraped a
real server under a real load. Its GPUs are told by a fake driver; what only vLLM tells stands on
a page that a server with vLLM had once.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import isfinite
from pathlib import Path

import pytest

from deploy.observability.dashboards.panels import TRACES as PANEL_LINK
from deploy.observability.programs import answers
from deploy.observability.prometheus_api import PrometheusApi, QueryError
from deploy.observability.questions import DASHBOARDS, questions
from harness.http_threads import Quiet, answering
from harness.processes import processes_below
from harness.serving import alive, wait_until
from programs.places import INSTALLED

_ROOT = Path(__file__).parents[2]
_PROMETHEUS = "" if (INSTALLED / "prometheus").exists() else "`make tools` says why it is missing"
_JAEGER = "" if (INSTALLED / "jaeger").exists() else "it is built by `make observe`, in minutes"
pytestmark = [pytest.mark.slow, pytest.mark.needs("Prometheus", _PROMETHEUS)]
needs_jaeger = pytest.mark.needs("Jaeger", _JAEGER)
_NO_COLLECTOR = (
    "--trace-config=mode=opentelemetry",
    "--trace-config=level=TIMESTAMPS",
    "--trace-config=opentelemetry,url=http://127.0.0.1:9/v1/traces",
)
"""Spans are counted, and lost, where there is no Jaeger."""
_INTERVAL = "1s"
_RATES = "20s"

_UPSTREAM = (
    "count(count(nv_inference_count) by (instance))",
    "sum by (pod) (rate(nv_inference_count[1m]))"
    " / ignoring(pod) group_left sum (rate(nv_inference_count[1m]))",
    "sum(nv_inference_request_success) by (pod)",
    "sum(nv_inference_request_failure) by (pod)",
    "sum(rate(nv_inference_compute_infer_duration_us[30s])) by (model) / 1000",
    "avg(rate(nv_inference_queue_duration_us[30s])"
    "/(1+rate(nv_inference_request_success[30s]))) by (pod)",
)
"""What the dashboard asks for that comes with Triton (ME-39)."""
_DERIVED = (
    "rate(nv_inference_request_success[1m])",
    "rate(nv_inference_queue_duration_us[1m]) / rate(nv_inference_request_success[1m])",
    "nv_inference_count / nv_inference_exec_count",
    "rate(penstock_llm_generation_tokens_total[1m])",
)
"""Requests a second, time in the queue, average batch, tokens a second (ME-38)."""


_ELSEWHERE = {
    "penstock_model_load": "models that calls load: tests/models/residency/test_seen.py",
    "penstock_model_resid": "models that calls load: tests/models/residency/test_seen.py",
    "penstock_model_unloads": "models that calls load: tests/models/residency/test_seen.py",
    "penstock_model_wakes": "models that calls load: tests/models/residency/test_seen.py",
    "penstock_alias": "aliases: tests/models/releases/test_releases.py",
    "penstock_shadow": "aliases: tests/models/releases/test_releases.py",
    "penstock_tls_certificate": "a server with TLS: tests/app/test_certificates.py",
}
"""Parts of expressions that have data of other servers than this, and which tests ask them."""


class Observed:
    """`make observe`, under way."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        assert process.stdout is not None
        self.process = process
        self.folder = folder
        self.urls: dict[str, str] = {}
        for line in process.stdout:
            name, _, rest = line.strip().partition(" ")
            self.urls[name] = rest.strip()
            if line.startswith("A load runs"):
                return
        raise AssertionError(f"it ended: {process.communicate()[1]}")

    @property
    def prometheus(self) -> PrometheusApi:
        return PrometheusApi(self.urls["Prometheus"])


class _Page(Quiet, BaseHTTPRequestHandler):
    """The recorded page of a server with vLLM."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(Path(__file__).with_name("vllm_page.txt").read_bytes())


@pytest.fixture(scope="module")
def recorded_page() -> Iterator[str]:
    """The address of the recorded page."""
    with answering(ThreadingHTTPServer(("127.0.0.1", 0), _Page)) as address:
        yield address


@pytest.fixture(scope="module")
def observed(recorded_page: str) -> Iterator[Observed]:
    """The stack, with a server that has GPUs, once its metrics have been scraped."""
    server = f"{sys.executable} {Path(__file__).with_name('server_with_gpus.py')} serve"
    command = [sys.executable, "-m", "deploy.observability.observe"]
    options = [f"--command={server}", f"--interval={_INTERVAL}", f"--target={recorded_page}"]
    options += ["--metrics-interval-ms=500", *(_NO_COLLECTOR if _JAEGER else ())]
    with tempfile.TemporaryDirectory() as temporary:
        process = subprocess.Popen(
            [*command, *options],
            cwd=_ROOT,
            env={**os.environ, "TMPDIR": temporary},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield Observed(process, Path(temporary))
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def _is_elsewhere(expression: str) -> bool:
    """Whether only other servers have data for it, and which tests ask them."""
    return any(part in expression for part in _ELSEWHERE)


def _without_data(prometheus: PrometheusApi, expressions: list[str]) -> list[str]:
    """The expressions that have no finite value for any series."""
    return [
        expression
        for expression in expressions
        if not any(isfinite(line.points[-1][1]) for line in prometheus.now(expression))
    ]


def _all_have_data(observed: Observed, expressions: list[str]) -> None:
    """Wait until they do; those that still do not are named."""
    left = [one for one in expressions if not _is_elsewhere(one)]
    assert left

    def asked() -> bool:
        nonlocal left
        left = _without_data(observed.prometheus, left)
        return not left

    try:
        wait_until(asked, timeout=60)
    except AssertionError:
        pytest.fail("no data for:\n" + "\n".join(left))


@pytest.mark.contract("ME-39")
@pytest.mark.parametrize("dashboard", sorted(DASHBOARDS.glob("*.json")), ids=lambda path: path.stem)
def test_each_expression_of_a_dashboard_has_data(observed: Observed, dashboard: Path) -> None:
    _all_have_data(observed, [each.expression for each in questions(dashboard, _RATES)])


@pytest.mark.contract("ME-39")
def test_what_the_dashboard_of_triton_asks_for_has_data(observed: Observed) -> None:
    _all_have_data(observed, list(_UPSTREAM))


@pytest.mark.contract("ME-38")
def test_derived_values_have_data(observed: Observed) -> None:
    _all_have_data(observed, list(_DERIVED))


def test_each_recording_rule_has_data(observed: Observed) -> None:
    rules = [rule for rule in observed.prometheus.rules() if rule["type"] == "recording"]
    _all_have_data(observed, [rule["name"] for rule in rules])


def test_what_each_alert_compares_has_data(observed: Observed) -> None:
    rules = [rule for rule in observed.prometheus.rules() if rule["type"] == "alerting"]
    _all_have_data(observed, [part for rule in rules for part in _compared(rule["query"])])


def _compared(alert: str) -> list[str]:
    """The expressions in an alert that have a value while all is well: what is on the left of
    comparisons, at this time.
    """
    parts = re.split(r"\s(?:and|or|unless)(?: on \([\w, ]+\))?\s", alert)
    left = (re.sub(r" (?:>|==) [\d.e+]+$| offset \w+", "", part) for part in parts)
    return [_balanced(part) for part in left]


def _balanced(part: str) -> str:
    """Without the parenthesis of a group that was split."""
    surplus = part.count("(") - part.count(")")
    return part.removeprefix("(" * surplus).removesuffix(")" * -surplus)


def test_rules_are_evaluated_without_errors(observed: Observed) -> None:
    wait_until(lambda: all(rule["lastEvaluation"] > "1" for rule in observed.prometheus.rules()))
    rules = observed.prometheus.rules()
    assert [rule for rule in rules if rule["health"] != "ok"] == []


def test_expression_that_is_wrong_is_refused_with_the_reason(observed: Observed) -> None:
    with pytest.raises(QueryError, match=r"parse error: .*: rate\(up\["):
        observed.prometheus.now("rate(up[")


@pytest.mark.contract("ME-37")
def test_prometheus_scrapes_the_job_triton(observed: Observed) -> None:
    lines = observed.prometheus.now('up{job="triton"}')
    assert [line.points[0][1] for line in lines] == [1.0, 1.0]
    assert observed.prometheus.healthy_targets() == 2


@needs_jaeger
def test_links_of_panels_find_traces(observed: Observed) -> None:
    """Jaeger's search for a model, as the dashboards link to it."""
    search = PANEL_LINK.replace("${jaeger:raw}/", f"{observed.urls['Jaeger']}/api/")
    search = search.replace("/api/search", "/api/traces")
    url = search.replace("${__field.labels.model}", "tiny_llm")

    def found() -> list[str]:
        with urllib.request.urlopen(url, timeout=10) as answer:
            traces = json.load(answer)["data"] or []
        return [span["operationName"] for trace in traces for span in trace["spans"]]

    wait_until(lambda: "tiny_llm" in found())
    assert {"InferRequest", "tiny_llm"} <= set(found())


@needs_jaeger
def test_exemplars_lead_from_histograms_to_traces(observed: Observed) -> None:
    def stored() -> list[str]:
        series = observed.prometheus.exemplars("penstock_queue_duration_seconds_bucket")
        return [one["labels"]["trace_id"] for labels in series for one in labels["exemplars"]]

    wait_until(lambda: len(stored()) > 0)
    url = f"{observed.urls['Jaeger']}/api/traces/{stored()[-1]}"
    wait_until(lambda: answers(url))
    with urllib.request.urlopen(url, timeout=10) as answer:
        assert json.load(answer)["data"][0]["spans"]


@pytest.mark.last
def test_ctrl_c_ends_everything(observed: Observed) -> None:
    children = processes_below(observed.process.pid)
    assert len(children) >= 4 - bool(_JAEGER)
    observed.process.send_signal(signal.SIGINT)
    output, errors = observed.process.communicate(timeout=60)
    assert (observed.process.returncode, output.strip(), errors) == (0, "", "")
    assert [pid for pid in children if alive(pid)] == []
    assert list(observed.folder.glob("penstock-observe-*")) == []
