"""The dashboard of encoders, and of all models that the server batches."""

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
)
from deploy.observability.dashboards.panels import Page, graph, number, page

_COUNT, _EXECUTIONS = "nv_inference_count", "nv_inference_exec_count"
_SUCCESS = "nv_inference_request_success"
_QUEUE = "nv_inference_queue_duration_us"
_INFER = "nv_inference_compute_infer_duration_us"


def encoders() -> Page:
    """Batches: how large they are, how long requests wait for them, and what each one costs."""
    return page(
        "penstock-encoders",
        "Penstock: encoders and other batched models",
        "Batch sizes, queues and compute times of models that the server batches. "
        "Metrics that begin with nv_ are Triton's.",
        {
            "Now": [
                number("Inferences", "ops", total_rate(_COUNT)),
                number("Requests", "reqps", total_rate(_SUCCESS)),
                number("Batches", "ops", total_rate(_EXECUTIONS)),
                number(
                    "Average batch",
                    "none",
                    f"{total_rate(_COUNT)} / ({total_rate(_EXECUTIONS)} > 0)",
                ),
                number(
                    "Average wait", "µs", f"{total_rate(_QUEUE)} / ({total_rate(_SUCCESS)} > 0)"
                ),
                number("Waiting", "none", f"sum(nv_inference_pending_request_count{{{SELECTED}}})"),
            ],
            "Throughput": [
                graph("Inferences", "ops", ("{{model}}", rate(_COUNT)), traces=True),
                graph("Batches", "ops", ("{{model}}", rate(_EXECUTIONS))),
                graph(
                    "Rejected",
                    "reqps",
                    (
                        "{{model}}",
                        rate("nv_inference_request_failure", matching='reason="REJECTED"'),
                    ),
                    about="Full queues, and queue timeouts.",
                ),
            ],
            "Batches": [
                graph("Average batch", "none", ("{{model}}", average(_COUNT, _EXECUTIONS))),
                graph(
                    "Batches by size",
                    "ops",
                    ("up to {{le}}", rate("penstock_batch_size_bucket", by="le")),
                    about="Cumulative. Needs --metrics-config=histogram_latencies=true.",
                ),
                graph(
                    "Share of a request's time in the queue",
                    "percentunit",
                    ("{{model}}", average(_QUEUE, "nv_inference_request_duration_us")),
                    maximum=1,
                    about="High with small batches: more instances help. High with full batches: "
                    "the model is the limit.",
                ),
            ],
            "Queue": [
                graph("Average wait", "µs", ("{{model}}", average(_QUEUE, _SUCCESS))),
                graph(
                    "Wait: percentiles",
                    "s",
                    *percentiles(partial(quantile, "penstock_queue_duration_seconds")),
                    about="Needs --metrics-config=histogram_latencies=true.",
                ),
                graph(
                    "Requests that wait",
                    "none",
                    ("{{model}}", gauge("nv_inference_pending_request_count")),
                ),
            ],
            "Compute": [
                graph("A batch", "µs", ("{{model}}", average(_INFER, _EXECUTIONS))),
                graph("An inference", "µs", ("{{model}}", average(_INFER, _COUNT))),
                graph(
                    "Before and after",
                    "µs",
                    (
                        "{{model}} input",
                        average("nv_inference_compute_input_duration_us", _SUCCESS),
                    ),
                    (
                        "{{model}} output",
                        average("nv_inference_compute_output_duration_us", _SUCCESS),
                    ),
                ),
                graph(
                    "Request: percentiles",
                    "µs",
                    *percentiles(partial(summary, "nv_inference_request_summary_us")),
                    about="Needs --metrics-config=summary_latencies=true.",
                    traces=True,
                ),
                graph(
                    "Compute: percentiles",
                    "µs",
                    *percentiles(partial(summary, "nv_inference_compute_infer_summary_us")),
                    about="Needs --metrics-config=summary_latencies=true.",
                ),
                graph(
                    "Cache hits",
                    "reqps",
                    ("{{model}}", rate("nv_cache_num_hits_per_model")),
                    about="Answers that were not computed, of models with response_cache.",
                ),
            ],
        },
    )
