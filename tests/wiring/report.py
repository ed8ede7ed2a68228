"""The report of all cuts: numbers, and the wires that no test holds, with the reason."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from .wires import all_wires, without_use

_UNNOTICED = ("-", "no end")
"""Outcomes of a cut that no test noticed: all passed, or the last did not end in time."""
_GPU = "needs a GPU, or a second device"
_TIME = "changes when something happens or how much is in flight, not what is answered"
_PASSED_ON = (
    "handed on by name beside others that are noticed; the setting that it becomes has tests"
)
_PLAIN = (
    "has one value only, is a hint or a text, or is handed to backends of which none here uses it"
)
_ENGINE = "given only where an engine runs, or to a backend without a server"
REASONS: Mapping[str, Sequence[str]] = {
    _GPU: (
        "DeviceSettings.host_policies",
        "DeviceSettings.load_limits",
        "DeviceSettings.min_supported_compute_capability",
        "InstanceGroup.gpus",
        "InstanceGroup.host_policy",
        "InstanceGroup.kind",
        "MetricsSettings.gpu",
        "RateLimitResource.device",
        "RateLimiterResource.global_",
        "in_process.options.ModelLoadDeviceLimit.device",
        "in_process.options.ModelLoadDeviceLimit.fraction",
        "in_process.options.ModelLoadDeviceLimit.kind",
        "in_process.options.Options.gpu_metrics",
        "in_process.options.Options.host_policies",
        "in_process.options.Options.min_supported_compute_capability",
        "in_process.options.Options.model_load_device_limits",
        "in_process.options.RateLimiterResource.device",
    ),
    _TIME: (
        "GrpcSettings.max_response_pool_size",
        "HttpSettings.idle_timeout_secs",
        "HttpSettings.send_timeout_secs",
        "KeepaliveSettings.max_ping_strikes",
        "KeepaliveSettings.max_pings_without_data",
        "MetricsSettings.interval_ms",
        "ModelConfig.parameters[penstock.gather_percent]",
        "ModelConfig.parameters[penstock.response_window]",
        "ModelConfig.parameters[penstock.stream_interval_ms]",
        "OpenTelemetrySettings.bsp_max_export_batch_size",
        "OpenTelemetrySettings.bsp_max_queue_size",
        "RepositorySettings.load_thread_count",
        "RepositorySettings.poll_seconds",
        "Settings.request_memory_pool_byte_size",
        "StrategyDirect.max_queue_delay_microseconds",
        "StrategyDirect.minimum_slot_utilization",
        "StrategyOldest.max_candidate_sequences",
        "StrategyOldest.max_queue_delay_microseconds",
        "StrategyOldest.preferred_batch_size",
        "StrategyOldest.preserve_ordering",
        "in_process.server.Server.start(polling_interval)",
        "in_process.server.Server.unload(polling_interval)",
        "in_process.server.Server.unload(timeout)",
        "in_process.server.Server.unload(wait_until_unloaded)",
    ),
    _PASSED_ON: (
        "in_process.frontend.KServeGrpc.Options.http2_max_ping_strikes",
        "in_process.frontend.KServeGrpc.Options.http2_max_pings_without_data",
        "in_process.frontend.KServeGrpc.Options.http2_min_recv_ping_interval_without_data_ms",
        "in_process.frontend.KServeGrpc.Options.keepalive_permit_without_calls",
        "in_process.frontend.KServeGrpc.Options.keepalive_time_ms",
        "in_process.frontend.KServeGrpc.Options.keepalive_timeout_ms",
        "in_process.frontend.KServeGrpc.Options.max_connection_age_grace_ms",
        "in_process.frontend.KServeGrpc.Options.max_connection_age_ms",
        "in_process.options.Options.metrics_interval",
        "in_process.options.Options.model_load_thread_count",
    ),
    _PLAIN: (
        "BatchOutput.kind",
        "Input.format",
        "InstanceGroup.profile",
        "PinnedMemory.enable",
        "Warmup.name",
        "in_process.server.Server.metrics(metric_format)",
    ),
    _ENGINE: (
        "BackendSettings.media_urls",
        "ModelConfig.parameters[penstock.adapter_folders]",
        "ModelConfig.parameters[penstock.allowed_media_hosts]",
        "ModelConfig.parameters[penstock.engine_cores]",
        "ModelConfig.parameters[penstock.matryoshka]",
        "ModelConfig.parameters[penstock.max_queued_tokens]",
    ),
    "checked at the start, and of no other use": ("SagemakerSettings.safe_ports",),
    "refused or said to be without effect, as the flag that it becomes": (
        "in_process.frontend.KServeHttp.Options.thread_count",
        "in_process.frontend.Metrics.Options.thread_count",
        "in_process.options.Options.buffer_manager_thread_count",
        "in_process.options.Options.cache_directory",
        "in_process.options.Options.cuda_memory_pool_sizes",
        "in_process.options.Options.pinned_memory_pool_size",
        "in_process.options.Options.repo_agent_directory",
    ),
}
"""Why a wire may stay without a test, and the wires of which that is true."""
_NOTICED = "noticed"


def lines(cuts: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """The report, in Markdown."""
    noticed = {each["wire"] for each in cuts if each["noticed"] not in _UNNOTICED}
    tried = {each["wire"] for each in cuts}
    reasons = without_use() | {wire: reason for reason, of in REASONS.items() for wire in of}
    states: dict[str, list[str]] = defaultdict(list)
    for wire in all_wires():
        open_ = "open: " + ("given, not noticed" if wire in tried else "given by no such test")
        states[_NOTICED if wire in noticed else reasons.get(wire, open_)].append(wire)
    yield f"{sum(map(len, states.values()))} wires, {len(states.pop(_NOTICED, []))} noticed."
    yield from ("", "| number | what is said of them | wires |", "|---:|---|---|")
    for state, wires in sorted(states.items()):
        yield f"| {len(wires)} | {state} | {', '.join(f'`{wire}`' for wire in wires)} |"
