"""The dashboard of language models: tokens, first tokens, the engine's queue and cache."""

from __future__ import annotations

from functools import partial

from deploy.observability.dashboards.expressions import (
    SELECTED,
    average,
    either,
    gauge,
    percentiles,
    quantile,
    rate,
    worst,
)
from deploy.observability.dashboards.panels import Page, graph, number, page

_SUCCESS = "nv_inference_request_success"
_GENERATED = either(
    rate("penstock_llm_generation_tokens_total"), rate("vllm:generation_tokens_total")
)
_PROMPTS = either(rate("penstock_llm_prefill_tokens_total"), rate("vllm:prompt_tokens_total"))
_PREEMPTED = either(rate("penstock_llm_preemptions_total"), rate("vllm:num_preemptions_total"))
_RUNNING, _WAITING = "penstock_llm_running_requests", "penstock_llm_waiting_requests"


def llm() -> Page:
    """Language models of any engine; also of Triton's vLLM backend, as far as it tells."""
    return page(
        "penstock-llm",
        "Penstock: language models",
        "Tokens, times and the state of engines. Metrics that begin with penstock_llm_ are of "
        "every engine of this server; vllm: are those of Triton's vLLM backend.",
        {
            "Now": [
                number("Generated", "none", f"sum({_GENERATED})", "Tokens a second."),
                number("Prompts", "none", f"sum({_PROMPTS})", "Tokens a second."),
                number("Running", "none", f"sum({_RUNNING}{{{SELECTED}}})"),
                number("Waiting", "none", f"sum({_WAITING}{{{SELECTED}}})"),
                number(
                    "KV cache in use",
                    "percentunit",
                    f"max(penstock_llm_kv_cache_usage{{{SELECTED}}})",
                ),
                number("First token", "s", f"max({_first('0.5')})", "p50 of the slowest model."),
            ],
            "Tokens": [
                graph("Generated tokens a second", "none", ("{{model}}", _GENERATED), traces=True),
                graph("Prompt tokens a second", "none", ("{{model}}", _PROMPTS)),
                graph(
                    "Tokens a request",
                    "none",
                    ("{{model}} generated", f"{_GENERATED_SUM} / ({rate(_SUCCESS)} > 0)"),
                    ("{{model}} prompt", f"{_PROMPTS_SUM} / ({rate(_SUCCESS)} > 0)"),
                ),
            ],
            "Times": [
                graph(
                    "Time to first token",
                    "s",
                    *percentiles(_first),
                    about="Where the engine has no histogram of it, it is the time to the first "
                    "response, with --metrics-config=histogram_latencies=true.",
                    traces=True,
                ),
                graph("Time between tokens", "s", *percentiles(_between), traces=True),
                graph("A whole request", "s", *percentiles(_whole), traces=True),
                graph(
                    "Wait for a place in the engine",
                    "s",
                    *percentiles(partial(quantile, "penstock_llm_queue_seconds")),
                ),
                graph(
                    "Average request",
                    "µs",
                    ("{{model}}", average("nv_inference_request_duration_us", _SUCCESS)),
                    about="With the time in the server, of all models that are chosen.",
                ),
                graph(
                    "Average time between tokens",
                    "s",
                    ("{{model}}", _BETWEEN),
                ),
            ],
            "Engine": [
                graph(
                    "Running and waiting",
                    "none",
                    ("{{model}} running", gauge(_RUNNING)),
                    ("{{model}} waiting", gauge(_WAITING)),
                ),
                graph(
                    "KV cache in use",
                    "percentunit",
                    ("{{model}}", worst("penstock_llm_kv_cache_usage")),
                    maximum=1,
                ),
                graph(
                    "Tokens a step",
                    "none",
                    (
                        "{{model}}",
                        average(
                            "penstock_llm_generation_tokens_total",
                            "penstock_llm_engine_steps_total",
                        ),
                    ),
                    about="How many sequences share a step of the engine (OpenVINO GenAI).",
                ),
            ],
            "Requests": [
                graph(
                    "Ended",
                    "reqps",
                    ("{{model}} answered", rate(_SUCCESS)),
                    ("{{model}} cancelled", rate("penstock_llm_cancelled_requests_total")),
                    ("{{model}} failed", rate("penstock_llm_failed_requests_total")),
                ),
                graph(
                    "Cancelled by phase",
                    "reqps",
                    ("{{phase}}", rate("penstock_cancelled_total", "phase")),
                    about="Clients that went away while their request was queued, executed or "
                    "streamed.",
                ),
                graph(
                    "Preempted",
                    "reqps",
                    ("{{model}}", _PREEMPTED),
                    about="Running requests that lost their KV cache to others and begin again "
                    "(vLLM): the cache is too small for what runs.",
                ),
                graph(
                    "Engines that hang",
                    "none",
                    ("{{model}}", gauge("penstock_hung_processes")),
                ),
            ],
        },
        models='{__name__=~"penstock_llm_requests_total|vllm:generation_tokens_total"}',
    )


_GENERATED_SUM = f"({_GENERATED})"
_PROMPTS_SUM = f"({_PROMPTS})"


def _first(share: str) -> str:
    """Seconds to the first token: the engine's histogram, vLLM's, or the first response's."""
    return either(
        quantile("penstock_llm_time_to_first_token_seconds", share),
        quantile("vllm:time_to_first_token_seconds", share),
        f"{quantile('nv_inference_first_response_histogram_ms', share)} / 1000",
    )


def _between(share: str) -> str:
    """Seconds between two tokens of a request."""
    return either(
        quantile("penstock_llm_inter_token_seconds", share),
        quantile("vllm:time_per_output_token_seconds", share),
    )


def _whole(share: str) -> str:
    """Seconds of a request in the engine, to its last token."""
    return either(
        quantile("penstock_llm_request_seconds", share),
        quantile("vllm:e2e_request_latency_seconds", share),
    )


_BETWEEN = average("penstock_llm_inter_token_seconds_sum", "penstock_llm_inter_token_seconds_count")
