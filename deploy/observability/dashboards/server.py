"""The dashboard of a whole server: requests, failures, latencies, queues, cache, machine."""

from __future__ import annotations

from functools import partial

from deploy.observability.dashboards.expressions import (
    SELECTED,
    average,
    gauge,
    percentiles,
    quantile,
    rate,
    summary,
    total_rate,
    worst,
)
from deploy.observability.dashboards.panels import Page, graph, number, page

_SUCCESS, _FAILURE = "nv_inference_request_success", "nv_inference_request_failure"
_PHASES = {
    "queue": "nv_inference_queue_duration_us",
    "compute input": "nv_inference_compute_input_duration_us",
    "compute infer": "nv_inference_compute_infer_duration_us",
    "compute output": "nv_inference_compute_output_duration_us",
}
_SUMMARIES = "Needs --metrics-config=summary_latencies=true. Idle models are left out."
_HISTOGRAMS = "Needs --metrics-config=histogram_latencies=true."
_FAULTS = rate(_FAILURE, matching='reason!="CANCELED"')
_FAILED = f"{_FAULTS} / ({_FAULTS} + {rate(_SUCCESS)} > 0)"


def server() -> Page:
    """Panels that are the same for every model of a server."""
    return page(
        "penstock-server",
        "Penstock: server",
        "Requests, failures, latencies, queues, cache and machine of an inference server. "
        "Metrics that begin with nv_ are Triton's.",
        {
            "Now": [
                number("Servers", "none", "count(count by (instance) (nv_inference_count))"),
                number("Requests", "reqps", total_rate(_SUCCESS)),
                number("Failures", "reqps", total_rate(_FAILURE)),
                number("Waiting", "none", _total("nv_inference_pending_request_count")),
                number("In flight", "none", _total("penstock_in_flight_requests")),
                number("Processors", "percentunit", _machine("nv_cpu_utilization")),
            ],
            "Requests": [
                graph("Requests by model", "reqps", ("{{model}}", rate(_SUCCESS)), traces=True),
                graph("Failures by reason", "reqps", ("{{reason}}", rate(_FAILURE, "reason"))),
                graph(
                    "Failed share",
                    "percentunit",
                    ("{{model}}", _FAILED),
                    about="Without requests whose client went away.",
                    maximum=1,
                    traces=True,
                ),
                graph("Inferences", "ops", ("{{model}}", rate("nv_inference_count"))),
                graph("Executions", "ops", ("{{model}}", rate("nv_inference_exec_count"))),
                graph(
                    "Cancelled by phase",
                    "reqps",
                    ("{{phase}}", rate("penstock_cancelled_total", "phase")),
                ),
            ],
            "Latency": [
                graph(
                    "Average request",
                    "µs",
                    ("{{model}}", average("nv_inference_request_duration_us", _SUCCESS)),
                    traces=True,
                ),
                graph(
                    "Where the time goes",
                    "µs",
                    *((phase, _phase(metric)) for phase, metric in _PHASES.items()),
                    about="Averages over the chosen models.",
                    stacked=True,
                ),
                graph(
                    "Request: percentiles",
                    "µs",
                    *percentiles(partial(summary, "nv_inference_request_summary_us")),
                    about=_SUMMARIES,
                    traces=True,
                ),
                graph(
                    "Queue: percentiles",
                    "µs",
                    *percentiles(partial(summary, "nv_inference_queue_summary_us")),
                    about=_SUMMARIES,
                ),
                graph(
                    "Compute: percentiles",
                    "µs",
                    *percentiles(partial(summary, "nv_inference_compute_infer_summary_us")),
                    about=_SUMMARIES,
                ),
                graph(
                    "Queue: p99 over the window",
                    "s",
                    ("{{model}}", quantile("penstock_queue_duration_seconds", "0.99")),
                    about=f"From a histogram, so that several servers add up. {_HISTOGRAMS}",
                ),
            ],
            "Queues and batches": [
                graph(
                    "Requests that wait",
                    "none",
                    ("{{model}}", gauge("nv_inference_pending_request_count")),
                ),
                graph("In flight", "none", ("{{model}}", gauge("penstock_in_flight_requests"))),
                graph(
                    "Average batch",
                    "none",
                    ("{{model}}", average("nv_inference_count", "nv_inference_exec_count")),
                ),
            ],
            "Response cache": [
                graph(
                    "Hits and misses",
                    "reqps",
                    ("{{model}} hits", rate("nv_cache_num_hits_per_model")),
                    ("{{model}} misses", rate("nv_cache_num_misses_per_model")),
                ),
                graph("Hit share", "percentunit", ("{{model}}", _HITS), maximum=1),
                graph(
                    "Filled",
                    "percentunit",
                    ("{{instance}}", 'nv_cache_util{instance=~"$instance"}'),
                    maximum=1,
                ),
            ],
            "Models loaded by calls": [
                graph(
                    "Memory budget by model",
                    "bytes",
                    ("{{model}} {{device}}", _RESIDENT),
                    about="With --model-control-mode=demand and --memory-budget, as the rest here.",
                ),
                graph("Loads by cause", "ops", ("{{cause}}", rate(_LOADS, "cause"))),
                graph(
                    "Unloads and wakes by cause",
                    "ops",
                    ("unload: {{cause}}", rate("penstock_model_unloads_total", "cause")),
                    ("wake: {{cause}}", rate("penstock_model_wakes_total", "cause")),
                ),
                graph(
                    "Share of time that goes into loading",
                    "percentunit",
                    ("{{instance}}", _LOADING_SHARE),
                    about="Of the time of models in memory. Above a fifth the memory is too small.",
                    maximum=1,
                ),
                graph(
                    "Waits for a load",
                    "s",
                    ("p50", _waits("0.5")),
                    ("p99", _waits("0.99")),
                    traces=True,
                ),
                graph("States", "none", ("{{state}}", _STATES)),
            ],
            "Aliases": [
                graph("Requests by target", "reqps", ("{{alias}}: {{target}}", _ALIAS_REQUESTS)),
                graph(
                    "Failures by target",
                    "percentunit",
                    ("{{alias}}: {{target}}", f"{_ALIAS_FAILURES} / ({_ALIAS_REQUESTS} > 0)"),
                ),
                graph("Weights", "percent", ("{{alias}}: {{target}}", _ALIAS_WEIGHTS)),
                graph(
                    "Went back",
                    "none",
                    ("{{alias}}: {{cause}}", _WENT_BACK),
                    about="In a quarter of an hour, by what caused it.",
                ),
                graph("Copies to shadows", "reqps", ("{{alias}}: {{outcome}}", _SHADOWS)),
            ],
            "Models and machine": [
                graph(
                    "Last load of a version",
                    "s",
                    ("{{model}}", worst("nv_model_load_duration_secs")),
                ),
                graph(
                    "Processors",
                    "percentunit",
                    ("{{instance}}", 'nv_cpu_utilization{instance=~"$instance"}'),
                    maximum=1,
                ),
                graph(
                    "Memory",
                    "bytes",
                    ("{{instance}} used", 'nv_cpu_memory_used_bytes{instance=~"$instance"}'),
                    ("{{instance}} total", 'nv_cpu_memory_total_bytes{instance=~"$instance"}'),
                ),
                graph(
                    "Model processes that hang",
                    "none",
                    ("{{model}}", gauge("penstock_hung_processes")),
                ),
                graph(
                    "Memory of model processes",
                    "bytes",
                    ("{{model}}", gauge("penstock_model_process_resident_memory_bytes")),
                ),
                graph(
                    "Restarts of model processes",
                    "none",
                    ("{{model}}", _RESTARTS),
                    about="In a quarter of an hour.",
                ),
                graph(
                    "Tasks of the event loop",
                    "none",
                    ("{{instance}}", 'penstock_event_loop_tasks{instance=~"$instance"}'),
                ),
                graph(
                    "Spans of traces",
                    "ops",
                    ("exported", _EXPORTED),
                    ("lost: {{reason}}", _LOST),
                    about="Where traces go to a collector (--trace-config=mode=opentelemetry).",
                ),
                graph(
                    "Time of a scrape",
                    "s",
                    ("{{instance}}", 'scrape_duration_seconds{instance=~"$instance"}'),
                ),
            ],
        },
    )


_LOADS = "penstock_model_loads_total"
_RESIDENT = f"sum by (model, device) (penstock_model_resident_bytes{{{SELECTED}}})"
_STATES = f"count by (state) (penstock_model_residency_state{{{SELECTED}}})"
_LOADING = rate("penstock_model_loading_seconds_total", "instance")
_LOADED = rate("penstock_model_resident_seconds_total", "instance")
_LOADING_SHARE = f"{_LOADING} / ({_LOADING} + {_LOADED} > 0)"


def _of_aliases(metric: str, label: str) -> str:
    of_servers = f'{metric}{{instance=~"$instance"}}[$__rate_interval]'
    return f"sum by (alias, {label}) (rate({of_servers}))"


_ALIAS_REQUESTS = _of_aliases("penstock_alias_requests_total", "target")
_ALIAS_FAILURES = _of_aliases("penstock_alias_failures_total", "target")
_ALIAS_WEIGHTS = 'avg by (alias, target) (penstock_alias_weight{instance=~"$instance"})'
_SHADOWS = _of_aliases("penstock_shadow_requests_total", "outcome")
_WENT_BACK = (
    'sum by (alias, cause) (increase(penstock_alias_rollbacks_total{instance=~"$instance"}[15m]))'
)


def _waits(share: str) -> str:
    waits = rate("penstock_model_load_wait_seconds_bucket", "le")
    return f"histogram_quantile({share}, {waits})"


_RESTARTS = f"sum by (model) (increase(penstock_model_process_restarts_total{{{SELECTED}}}[15m]))"
_OF_SERVERS = '{instance=~"$instance"}[$__rate_interval]'
_EXPORTED = f"sum(rate(penstock_trace_spans_exported_total{_OF_SERVERS}))"
_LOST = f"sum by (reason) (rate(penstock_trace_spans_dropped_total{_OF_SERVERS}))"
_HITS = (
    f"{rate('nv_cache_num_hits_per_model')} / ({rate('nv_cache_num_hits_per_model')}"
    f" + {rate('nv_cache_num_misses_per_model')} > 0)"
)


def _phase(metric: str) -> str:
    return f"{total_rate(metric)} / ({total_rate(_SUCCESS)} > 0)"


def _total(metric: str) -> str:
    return f"sum({metric}{{{SELECTED}}})"


def _machine(metric: str) -> str:
    return f'max({metric}{{instance=~"$instance"}})'
