"""The dashboard of GPUs."""

from __future__ import annotations

from deploy.observability.dashboards.panels import Page, graph, number, page

_CHOSEN = 'instance=~"$instance"'
_LEGEND = "{{gpu_uuid}}"
_USED = f"nv_gpu_memory_used_bytes{{{_CHOSEN}}}"
_TOTAL = f"nv_gpu_memory_total_bytes{{{_CHOSEN}}}"
_WATTS = f"sum by (instance) (rate(nv_energy_consumption{{{_CHOSEN}}}[$__rate_interval]))"


def gpu() -> Page:
    """Panels of each device's readings by NVIDIA's driver, and of the work done with its energy."""
    return page(
        "penstock-gpu",
        "Penstock: GPUs",
        "Use, memory and power of each device, as NVIDIA's driver tells them. All metrics are "
        "Triton's. Memory is of the whole device, not of this server alone.",
        {
            "Now": [
                number("Devices", "none", f"count(nv_gpu_utilization{{{_CHOSEN}}})"),
                number("Use", "percentunit", f"avg(nv_gpu_utilization{{{_CHOSEN}}})"),
                number("Memory", "percentunit", f"sum({_USED}) / sum({_TOTAL})"),
                number("Power", "watt", f"sum(nv_gpu_power_usage{{{_CHOSEN}}})"),
                number("Power limit", "watt", f"sum(nv_gpu_power_limit{{{_CHOSEN}}})"),
                number(
                    "Energy",
                    "joule",
                    f"sum(nv_energy_consumption{{{_CHOSEN}}})",
                    "Since the servers started.",
                ),
            ],
            "Devices": [
                graph(
                    "Use",
                    "percentunit",
                    (_LEGEND, f"nv_gpu_utilization{{{_CHOSEN}}}"),
                    maximum=1,
                    about="The share of time in which something ran, 0 to 1.",
                ),
                graph(
                    "Memory",
                    "bytes",
                    (f"{_LEGEND} used", _USED),
                    (f"{_LEGEND} total", _TOTAL),
                ),
                graph("Memory share", "percentunit", (_LEGEND, f"{_USED} / {_TOTAL}"), maximum=1),
            ],
            "Power": [
                graph(
                    "Power",
                    "watt",
                    (f"{_LEGEND} usage", f"nv_gpu_power_usage{{{_CHOSEN}}}"),
                    (f"{_LEGEND} limit", f"nv_gpu_power_limit{{{_CHOSEN}}}"),
                ),
                graph(
                    "Energy",
                    "watt",
                    ("{{instance}}", _WATTS),
                    about="Joules a second, from the driver's counter of energy.",
                ),
                graph(
                    "Inferences for a joule",
                    "none",
                    (
                        "{{instance}}",
                        f"sum by (instance) (rate(nv_inference_count{{{_CHOSEN}}}"
                        f"[$__rate_interval])) / ({_WATTS} > 0)",
                    ),
                ),
            ],
        },
    )
