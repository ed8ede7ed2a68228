"""Options of metrics and tracing."""

from __future__ import annotations

from penstock.cli import compound, tracing, values
from penstock.cli.flags.flag import Flag, Group, boolean, by_attribute, integer, text

METRICS = Group(
    "Metrics",
    (
        boolean("allow-metrics", "metrics.enabled", "Serve Prometheus metrics. Default true."),
        boolean("allow-gpu-metrics", "metrics.gpu", "Include GPU metrics. Default true."),
        boolean("allow-cpu-metrics", "metrics.cpu", "Include CPU metrics. Default true."),
        text(
            "metrics-address",
            "metrics.address",
            "Address to listen on. Default that of HTTP.",
        ),
        integer("metrics-port", "metrics.port", "Default 8002; 0 takes a free one.", values.port),
        Flag(
            "metrics-interval-ms",
            "float",
            values.interval,
            "metrics.interval_ms",
            "Milliseconds after which CPU and GPU metrics are read again. Default 2000.",
        ),
        Flag(
            "metrics-config",
            "string>=<string",
            compound.metrics_config,
            "metrics.latencies",
            "A setting of the metrics: counter_latencies, histogram_latencies, "
            "summary_latencies (booleans), summary_quantiles; llm,vllm_names (boolean) for "
            "vLLM's names of the load of language models, which gateways read. Repeatable.",
            by_attribute,
        ),
    ),
)

TRACING = Group(
    "Tracing",
    (
        Flag(
            "trace-config",
            "string>,<string>=<string",
            tracing.trace_config,
            "",
            "A setting of tracing: rate, level, count, mode; with a mode before it "
            "triton,file, triton,log-frequency, or opentelemetry,<setting>: url, resource, "
            "bsp_max_queue_size, bsp_schedule_delay, bsp_max_export_batch_size, protocol, sampler, "
            "ratio, slow_threshold_ms, always_on_error. Repeatable.",
        ),
        boolean(
            "allow-trace-control",
            "trace_control",
            "Let every client change the settings of traces. Default false: only calls that a "
            "restriction of the group trace has let through may.",
        ),
        boolean(
            "allow-trace-tensors",
            "trace_tensors",
            "Let those who may change the settings of traces set the level TENSORS, which writes "
            "clients' tensors to the trace. Default false: --trace-config=level=TENSORS alone may.",
        ),
    ),
)
