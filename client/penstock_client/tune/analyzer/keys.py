"""The keys of Model Analyzer's files: what each means here, and which mean nothing."""

from __future__ import annotations

OPTIONS = {
    "export_path": "--output",
    "run_config_search_mode": "--mode",
    "concurrency": "--concurrency",
    "request_rate": "--rate",
    "batch_sizes": "--client-batch-sizes",
}
"""Keys whose values are those of an option."""

OBJECTIVES = {
    "perf_throughput": "throughput",
    "perf_latency": "p99",
    "perf_latency_p99": "p99",
    "perf_latency_avg": "mean",
    "gpu_used_memory": "gpu-memory",
    # Where less is used more is free.
    "gpu_free_memory": "gpu-memory",
    "cpu_used_ram": "memory",
    "cpu_free_ram": "memory",
    "output_token_throughput": "tokens",
    "time_to_first_token_p99": "ttft",
    "inter_token_latency_p99": "itl",
}
"""Objectives by their names there."""

CONSTRAINTS = {
    ("perf_throughput", "min"): ("--min-throughput", ""),
    ("perf_latency", "max"): ("--max-p99", "ms"),
    ("perf_latency_p99", "max"): ("--max-p99", "ms"),
    ("gpu_used_memory", "max"): ("--max-gpu-memory", "MiB"),
    ("cpu_used_ram", "max"): ("--max-memory", "MiB"),
    ("time_to_first_token_p99", "max"): ("--max-ttft", "ms"),
    ("inter_token_latency_p99", "max"): ("--max-itl", "ms"),
}
"""Limits by metric and bound: the option, and the unit of the number there."""

SEARCH = {
    "run_config_search_min_concurrency": 1,
    "run_config_search_max_concurrency": 1024,
    "run_config_search_min_request_rate": 16,
    "run_config_search_max_request_rate": 8192,
    "run_config_search_min_instance_count": 1,
    "run_config_search_max_instance_count": 5,
    "run_config_search_min_model_batch_size": 1,
    "run_config_search_max_model_batch_size": 128,
    "optuna_min_trials": 20,
    "optuna_max_trials": 200,
    "optuna_early_exit_threshold": 10,
}
"""Numbers that bound a search, with their defaults there."""

COMPOSING = ("bls_composing_models", "ensemble_composing_models")
"""Models whose settings are searched with those of the model that calls them."""

REMOTE = {
    "triton_grpc_endpoint": "--remote",
    "triton_http_endpoint": "--remote-http",
    "triton_metrics_url": "--remote-metrics",
}
"""Where a server listens that runs already: of `triton_launch_mode` remote."""

SECTIONS = (
    *COMPOSING,
    *REMOTE,
    "num_configs_per_model",
    "weighting",
    "model_repository",
    "profile_models",
    "latency_budget",
    "min_throughput",
    "constraints",
    "objectives",
    "client_protocol",
    "triton_launch_mode",
    "triton_server_flags",
    "triton_server_environment",
    "perf_analyzer_flags",
    "genai_perf_flags",
    "run_config_search_disable",
    "request_rate_search_enable",
    "run_config_profile_models_concurrently_enable",
    "model_type",
)
"""Keys that are read each in its own way."""

OF_A_MODEL = (
    "parameters",
    "model_config_parameters",
    "constraints",
    "objectives",
    "triton_server_flags",
    "triton_server_environment",
    "perf_analyzer_flags",
    "genai_perf_flags",
    "model_type",
    "weighting",
)
"""Keys below a model's name."""

OF_A_MODEL_WITHOUT_EFFECT = ("cpu_only",)

WITHOUT_EFFECT = (
    "always_report_gpu_metrics",
    "checkpoint_directory",
    "client_max_retries",
    "collect_cpu_metrics",
    "concurrency_sweep_disable",
    "config_file",
    "cpu_only_composing_models",
    "dcgm_disable",
    "duration_seconds",
    "early_exit_enable",
    "filename_model_gpu",
    "filename_model_inference",
    "filename_server_only",
    "gpu_output_fields",
    "gpus",
    "inference_output_fields",
    "max_percentage_of_search_space",
    "min_percentage_of_search_space",
    "max_retries",
    "monitoring_interval",
    "num_top_model_configs",
    "output_model_repository_path",
    "override_output_model_repository",
    "perf_analyzer_cpu_util",
    "perf_analyzer_max_auto_adjusts",
    "perf_analyzer_path",
    "perf_analyzer_timeout",
    "perf_measurement_window",
    "perf_output",
    "perf_output_path",
    "plots",
    "reload_model_disable",
    "run_config_search_max_binary_search_steps",
    "run_config_search_max_preferred_batch_size",
    "run_config_search_preferred_batch_size_disable",
    "server_output_fields",
    "skip_detailed_reports",
    "skip_summary_reports",
    "triton_docker_args",
    "triton_docker_image",
    "triton_docker_labels",
    "triton_docker_mounts",
    "triton_docker_shm_size",
    "triton_install_path",
    "triton_output_path",
    "triton_server_path",
    "use_concurrency_formula",
)
"""Keys that say something about Model Analyzer's own doings."""

GLOBAL = (*OPTIONS, *SEARCH, *SECTIONS)
