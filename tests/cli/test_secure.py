"""`--secure`: the settings that it makes, and the options that it refuses."""

from __future__ import annotations

import re

import pytest

from cli.reading import settings_of
from penstock import cli
from penstock.rpc.restrictions import _FEATURES
from penstock.settings import Feature, Settings
from penstock.settings.exposures import exposures
from penstock.settings.rules import SettingsError
from penstock.settings.secure import GRPC_GROUPS, HTTP_GROUPS, is_local

HTTP_SECRETS = f"--http-restricted-api={','.join(HTTP_GROUPS)}:key=secret"
GRPC_SECRETS = f"--grpc-restricted-protocol={','.join(GRPC_GROUPS)}:key=secret"
EXPLICIT = "--model-control-mode=explicit"


def addresses(*arguments: str) -> tuple[str, str, str]:
    """Those of HTTP, gRPC and metrics."""
    settings = settings_of("--secure", *arguments)
    return settings.http.address, settings.grpc.address, settings.metrics.address


def refusal(*arguments: str) -> str:
    """The error of a start with options that contradict the profile."""
    with pytest.raises(SettingsError) as refused:
        settings_of("--secure", *arguments)
    return str(refused.value)


# -- addresses ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "http", "grpc"),
    [
        ([], "127.0.0.1", "127.0.0.1"),
        (["--http-use-ssl=true"], "0.0.0.0", "127.0.0.1"),
        (["--grpc-use-ssl-mutual=true"], "127.0.0.1", "0.0.0.0"),
        ([HTTP_SECRETS], "0.0.0.0", "127.0.0.1"),
        ([GRPC_SECRETS], "127.0.0.1", "0.0.0.0"),
        (["--http-restricted-api=inference:key=secret"], "127.0.0.1", "127.0.0.1"),
        (["--http-address=10.0.0.1", "--http-use-ssl=true"], "10.0.0.1", "127.0.0.1"),
        (["--grpc-address=10.0.0.1", GRPC_SECRETS], "127.0.0.1", "10.0.0.1"),
        (["--http-address=unix:/run/p", "--grpc-address=::1"], "unix:/run/p", "::1"),
    ],
)
def test_ports_are_local_without_tls_and_secrets(
    arguments: list[str], http: str, grpc: str
) -> None:
    assert addresses(*arguments) == (http, grpc, "127.0.0.1")


def test_a_policy_is_as_good_as_secrets_for_all_calls() -> None:
    found = addresses("--access-policy=policy.toml", "--http-address=0.0.0.0")
    assert found == ("0.0.0.0", "0.0.0.0", "127.0.0.1")
    assert settings_of("--secure", "--access-policy=f", EXPLICIT).repository.explicit


@pytest.mark.contract("SEC-01")
def test_without_it_the_addresses_are_those_of_triton() -> None:
    settings = settings_of()
    found = settings.http.address, settings.grpc.address, settings.metrics.address
    assert (settings.secure, *found) == (False, "0.0.0.0", "0.0.0.0", "0.0.0.0")


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize("address", ["0.0.0.0", "::", "10.1.2.3", "server.example.org", ""])
def test_an_address_that_strangers_reach_needs_tls_or_secrets(protocol: str, address: str) -> None:
    told = refusal(f"--{protocol}-address={address}")
    assert told.startswith(f"--{protocol}-address={address} contradicts --secure: it needs")
    assert f"--{protocol}-use-ssl=true, or secrets" in told


def test_a_refused_address_names_the_groups_without_a_secret() -> None:
    some = "--http-restricted-api=inference,trace,logging,statistics,model-config:key=secret"
    told = refusal("--http-address=0.0.0.0", some)
    missing = "model-repository,engine-control,request-control:<key>=<value>"
    assert f"--http-restricted-api=shared-memory,{missing};" in told


@pytest.mark.parametrize(
    "port", ["--openai-port=9000", "--allow-sagemaker=true", "--allow-vertex-ai=true"]
)
def test_every_port_that_speaks_http_keeps_to_the_rule(port: str) -> None:
    told = refusal("--allow-http=false", port, "--http-address=0.0.0.0")
    assert "--http-address=0.0.0.0 contradicts --secure" in told
    assert settings_of("--secure", "--allow-http=false", port).http.host == "127.0.0.1"


def test_a_protocol_that_is_off_may_have_any_address() -> None:
    off = "--allow-http=false", "--http-address=0.0.0.0", "--allow-grpc=false"
    assert addresses(*off, "--grpc-address=0.0.0.0")[:2] == ("0.0.0.0", "0.0.0.0")


def test_metrics_that_strangers_reach_are_told() -> None:
    (told,) = exposures(settings_of("--secure", "--metrics-address=10.0.0.1"))
    assert told.startswith("--metrics-address=10.0.0.1 opens the metrics to everybody")
    assert list(exposures(settings_of("--secure"))) == []
    assert list(exposures(settings_of("--metrics-address=10.0.0.1"))) == []


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("localhost", True),
        ("unix:/run/penstock", True),
        ("ipv6:[::1]", True),
        ("ipv6:[::]", False),
        ("::ffff:0.0.0.0", False),
        ("127.0.0.1.example.org", False),
        ("0", False),
        ("", False),
    ],
)
def test_only_this_machine_reaches_a_local_address(address: str, local: bool) -> None:
    assert is_local(address) is local


def test_groups_of_grpc_are_those_of_its_methods() -> None:
    """A method of a group that no rule names would be open to strangers."""
    assert {*GRPC_GROUPS, Feature.HEALTH, Feature.METADATA} == {*_FEATURES.values()}
    assert {*HTTP_GROUPS} == {*Feature} - {Feature.HEALTH, Feature.METADATA, Feature.METRICS}


# -- what is off ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "flag"),
    [
        (["--allow-model-upload=true"], "--allow-model-upload=true"),
        (["--allow-model-upload=true", HTTP_SECRETS], "--allow-model-upload=true"),
        (["--allow-trace-control=true"], "--allow-trace-control=true"),
        (["--allow-trace-tensors=true"], "--allow-trace-tensors=true"),
        (["--trace-config=level=TENSORS"], "--trace-config=level=TENSORS"),
        (["--allow-log-control=true"], "--allow-log-control=true"),
        (["--allow-media-urls=true"], "--allow-media-urls=true"),
        (["--allow-unsafe-models=true"], "--allow-unsafe-models=true"),
        (["--allow-client-shm=true"], "--allow-client-shm=true"),
        (["--allow-engine-control=true"], "--allow-engine-control=true"),
        (["--trust-fairness-id=true", "--tenants=t.json"], "--trust-fairness-id=true"),
        (["--grpc-reflection=true"], "--grpc-reflection=true"),
        (["--grpc-channelz=true"], "--grpc-channelz=true"),
        (["--http-docs=true"], "--http-docs=true"),
        (["--grpc-transport=grpcio"], "--grpc-transport=grpcio"),
        (["--openai-allow-origin=*"], "--openai-allow-origin=*"),
    ],
)
def test_what_contradicts_it_is_refused_by_name(arguments: list[str], flag: str) -> None:
    assert refusal(*arguments) == f"{flag} contradicts --secure: leave one of them out"


def test_the_command_says_what_contradicts_it_and_does_not_serve(
    served: list[Settings], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = "serve", "--model-repository=r", "--grpc-reflection=true", "--secure"
    assert (cli.main(arguments), served) == (1, [])
    assert "--grpc-reflection=true contradicts --secure" in capsys.readouterr().err


def test_reflection_and_media_by_url_are_off() -> None:
    settings = settings_of("--secure", "--backend-config=vllm,allow-media-urls=true")
    assert settings.grpc.reflection is False
    assert settings.backends.options_for("vllm")["allow-media-urls"] == "false"


def test_what_is_off_may_be_said_to_be_off() -> None:
    off = "--grpc-reflection=false", "--allow-media-urls=false", "--allow-model-upload=false"
    assert settings_of("--secure", *off).secure


# -- loads by requests ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "needed"),
    [
        ([], "--http-restricted-api"),
        (["--http-restricted-api=model-repository:k=v"], "--grpc-restricted-protocol"),
        (["--grpc-restricted-protocol=model-repository:k=v"], "--http-restricted-api"),
        (["--allow-http=false", "--allow-sagemaker=true", GRPC_SECRETS], "--http-restricted-api"),
        (["--http-restricted-api=inference:k=v"], "--http-restricted-api"),
    ],
)
def test_loads_by_requests_need_a_secret(arguments: list[str], needed: str) -> None:
    told = refusal(EXPLICIT, *arguments)
    assert told.startswith(f"{EXPLICIT} contradicts --secure, unless loads need a secret: ")
    assert told.endswith(f"{needed}=model-repository:<key>=<value>")


@pytest.mark.parametrize(
    "arguments",
    [
        [
            "--http-restricted-api=model-repository:k=v",
            "--grpc-restricted-protocol=model-repository:k=v",
        ],
        ["--allow-http=false", "--grpc-restricted-protocol=model-repository:k=v"],
        ["--allow-grpc=false", "--http-restricted-api=model-repository:k=v"],
    ],
)
def test_loads_behind_a_secret_are_no_contradiction(arguments: list[str]) -> None:
    assert settings_of("--secure", EXPLICIT, *arguments).repository.explicit


def test_it_takes_no_value(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.tritonserver(["--model-repository=r", "--secure=true"]) == 1
    assert re.search("'--secure' doesn't allow an argument", capsys.readouterr().err)
