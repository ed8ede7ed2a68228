"""Values of options, one by one and combined."""

from __future__ import annotations

import pytest

from cli.reading import settings_of
from penstock.cli.arguments import UsageError, parse_arguments
from penstock.metrics.measurement import Quantile
from penstock.settings import Feature, ModelControlMode, RateLimitResource, Restriction


@pytest.mark.parametrize(
    "arguments",
    [["--http-port", "9000"], ["--http-port=9000"], ["--http-po=9000"]],
    ids=" ".join,
)
def test_every_spelling_of_a_value_is_understood(arguments: list[str]) -> None:
    assert settings_of(*arguments).http.port == 9000


def test_the_last_of_repeated_options_counts() -> None:
    assert settings_of("--http-port=1", "--http-port=2").http.port == 2


@pytest.mark.contract("CL-06", "CL-12")
def test_repositories_and_models_add_up() -> None:
    settings = settings_of(
        "--model-store=s",
        "--model-repository=r",
        "--model-control-mode=EXPLICIT",
        "--load-model=a",
        "--load-model=b",
    )
    assert settings.repository.paths == ("r", "s")
    assert settings.repository.startup_models == ("a", "b")
    assert settings.repository.control_mode is ModelControlMode.EXPLICIT


@pytest.mark.contract("CL-02")
@pytest.mark.parametrize(
    ("word", "meaning"),
    [("true", True), ("True", True), ("1", True), ("false", False), ("False", False), ("0", False)],
)
def test_booleans(word: str, meaning: bool) -> None:
    assert settings_of(f"--strict-readiness={word}").repository.strict_readiness is meaning


@pytest.mark.contract("CL-05")
@pytest.mark.parametrize(("word", "level"), [("2", 2), ("true", 1), ("FALSE", 0)])
def test_verbosity_may_be_a_boolean(word: str, level: int) -> None:
    assert settings_of(f"--log-verbose={word}").logging.verbose == level


@pytest.mark.contract("CL-48")
def test_settings_of_backends_are_grouped_by_name() -> None:
    settings = settings_of(
        "--backend-config=default-max-batch-size=8",
        "--backend-config=python,shm-region-prefix-name=p",
        "--backend-config=python,default-max-batch-size=2",
    )
    assert settings.backends.options_for("python") == {
        "default-max-batch-size": "2",
        "shm-region-prefix-name": "p",
    }
    assert settings.backends.options_for("vllm") == {"default-max-batch-size": "8"}


@pytest.mark.contract("CL-39")
def test_compound_values() -> None:
    settings = settings_of(
        "--rate-limit-resource=R1:4",
        "--rate-limit-resource=r2:2:1",
        "--cuda-memory-pool-byte-size=0:5",
        "--cuda-virtual-address-size=1:6",
        "--model-load-gpu-limit=1:0.5",
        "--metrics-config=summary_quantiles=0.5:0.05,0.9:0.01",
        "--grpc-restricted-protocol=model-config,trace:key=va=lue",
    )
    resources = (RateLimitResource("R1", 4), RateLimitResource("r2", 2, 1))
    assert settings.rate_limit.resources == resources
    assert settings.devices.cuda_memory_pool_byte_size == {0: 5}
    assert settings.devices.cuda_virtual_address_size == {1: 6}
    assert settings.devices.load_limits == {1: 0.5}
    assert settings_of("--memory-budget=1.5GiB").devices.memory_budget == {"": 3 << 29}
    by_device = settings_of("--memory-budget=host=1GiB,gpu=0.9,gpu:1=20GiB").devices
    assert by_device.memory_budget == {"host": 1 << 30, "gpu": 0.9, "gpu1": 20 << 30}
    quantiles = (Quantile(0.5, 0.05), Quantile(0.9, 0.01))
    assert settings.metrics.latencies.summary_quantiles == quantiles
    assert settings.grpc.restrictions == (
        Restriction(frozenset({Feature.MODEL_CONFIG, Feature.TRACE}), "key", "va=lue"),
    )


@pytest.mark.contract("CL-35", "ME-01")
def test_metrics_listen_on_the_http_address_by_default() -> None:
    assert (settings_of().metrics.enabled, settings_of().metrics.port) == (True, 8002)
    assert not settings_of("--allow-metrics=false").metrics.enabled
    assert settings_of("--http-address=127.0.0.1").metrics.address == "127.0.0.1"
    assert settings_of("--metrics-address=::1").metrics.address == "::1"


@pytest.mark.contract("CL-28")
def test_mutual_tls_implies_tls() -> None:
    assert settings_of("--grpc-use-ssl-mutual=true").grpc.tls.enabled


@pytest.mark.contract("CL-08", "CL-50", "AC-01")
def test_both_ways_to_leave_configurations_as_they_are() -> None:
    assert not settings_of("--disable-auto-complete-config").repository.auto_complete_config
    assert not settings_of("--strict-model-config=true").repository.auto_complete_config
    assert settings_of("--strict-model-config=false").repository.auto_complete_config


@pytest.mark.contract("CL-33")
def test_vertex_ai_speaks_through_the_environment() -> None:
    environment = {"AIP_MODE": "PREDICTION", "AIP_HTTP_PORT": "81", "AIP_STORAGE_URI": "s"}
    settings = parse_arguments(["--allow-grpc=true"], environment, lambda _: None)
    assert settings.vertex.enabled
    assert settings.vertex.port == 81
    assert (settings.http.enabled, settings.grpc.enabled) == (False, True)
    assert settings.repository.paths == ("s",)


def test_the_environment_turns_escaping_and_gpus_off() -> None:
    environment = {"TRITON_SERVER_ESCAPE_LOG_MESSAGES": "0", "TRITON_SERVER_CPU_ONLY": "1"}
    settings = settings_of(environment=environment)
    assert not settings.logging.escape
    assert settings.devices.cpu_only


def test_an_option_turns_gpus_off_too() -> None:
    assert settings_of("--cpu-only").devices.cpu_only
    assert not settings_of().devices.cpu_only


@pytest.mark.contract("CL-38", "RC-01")
def test_a_cache_has_settings() -> None:
    settings = settings_of("--cache-config=redis,host=h", "--cache-config=redis,port=6379")
    assert settings.cache.config == {"redis": {"host": "h", "port": "6379"}}


@pytest.mark.contract("CL-38", "RC-10")
def test_the_older_flag_asks_for_the_local_cache() -> None:
    assert settings_of("--response-cache-byte-size=5").cache.config == {"local": {"size": "5"}}


def test_names_of_variables_for_models_add_up() -> None:
    settings = settings_of("--model-env=AWS_*,TOKEN", "--model-env=OTHER")
    assert settings.backends.model_env == ("AWS_*", "TOKEN", "OTHER")


@pytest.mark.parametrize("names", ["", "A,,B", "A B", "A*B", "1A", "A=b"])
def test_what_names_no_variable_is_refused(names: str) -> None:
    with pytest.raises(UsageError, match="is no name of an environment variable"):
        settings_of(f"--model-env={names}")
