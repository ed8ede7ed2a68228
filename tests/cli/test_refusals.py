"""Errors of the command line, and their texts."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from cli.reading import SERVED, settings_of
from cli.starts import IMPOSSIBLE, Start, cases
from penstock import cli
from penstock.cli.arguments import UsageError
from penstock.settings import Settings


def said(capsys: pytest.CaptureFixture[str]) -> str:
    """Standard error without the line that leads to `--help`."""
    lines = capsys.readouterr().err.splitlines()
    return "\n".join(line for line in lines if not line.startswith("Usage: ")).strip()


@pytest.mark.contract("CL-01")
@pytest.mark.parametrize("start", cases(refused=True))
def test_refusals_have_the_words_of_tritonserver(
    start: Start, served: list[Settings], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.tritonserver(start.arguments) == 1
    output = said(capsys)
    assert output == re.sub(r"^\S*/bin/tritonserver:", "tritonserver:", start.output).strip() or (
        "not supported by Penstock yet" in output
    )
    assert not served


@pytest.mark.parametrize("start", cases(refused=False))
def test_options_of_tritonserver_are_accepted_or_refused_by_name(
    start: Start, served: list[Settings], capsys: pytest.CaptureFixture[str]
) -> None:
    status = cli.tritonserver(start.arguments)
    output = said(capsys)
    warnings = re.findall(r"^Warning: .*", start.output, re.MULTILINE)
    assert re.findall(r"^Warning: .*", output, re.MULTILINE) == warnings
    assert status == SERVED or (status == 1 and "not supported by Penstock yet" in output)


@pytest.mark.contract("CL-36")
@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ("nope=true", 'metrics-config nope".\nunknown setting of metrics'),
        ("vllm_names=true", "unknown setting of metrics 'vllm_names'"),
        ("llm,nope=true", "unknown setting of metrics 'llm,nope'"),
        ("llm,vllm_names=nope", "invalid value for bool option: nope"),
        ("counter_latencies=nope", "invalid value for bool option: nope"),
        ("summary_quantiles=0.5", 'metrics-config summary_quantiles".'),
        ("summary_quantiles=0.5:0.05,2:0.1", "a quantile is in range [0.0, 1.0], got 2"),
    ],
)
def test_a_setting_of_metrics_that_means_nothing_is_refused(setting: str, problem: str) -> None:
    with pytest.raises(UsageError, match=re.escape(problem)):
        settings_of(f"--metrics-config={setting}")


@pytest.mark.parametrize("port", IMPOSSIBLE)
def test_a_port_that_cannot_exist_is_refused(port: str) -> None:
    with pytest.raises(UsageError, match="Provided option value is out of bound"):
        settings_of(port)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--http-port"], "option '--http-port' requires an argument"),
        (["--http=1"], "option '--http=1' is ambiguous; possibilities: '--http-address'"),
        (
            ["--disable-auto-complete-config=true"],
            "option '--disable-auto-complete-config' doesn't allow an argument",
        ),
        (["-x"], "invalid option -- 'x'"),
        (["--http-port=80x"], 'Bad option: "--http-port".\nInvalid option value. Got 80x'),
        (["--http-port=99999999999"], "Provided option value is out of bound. Got 99999999999"),
        (["--log-info", "--id=x"], "invalid value for bool option: --id=x"),
        (["--", "--http-port=1"], "Unexpected argument: --http-port=1"),
        (["word", "--http-port=abc"], 'Bad option: "--http-port".'),
        (["--grpc-infer-thread-count=1"], "Must be in the range 2 to 128."),
        (["--http-max-input-size=0"], "Error: --http-max-input-size must be greater than 0."),
        (["--cuda-memory-pool-byte-size=5"], "requires format <first>:<second>. Found: 5"),
        (["--model-load-gpu-limit=0:2"], "in range [0.0, 1.0], got 2.000000"),
        (["--memory-budget=much"], "is a number of bytes, or like 48GiB or 80GB. Got much"),
        (["--memory-budget=host=1.5"], "above 0.0 and at most 1.0. Got 1.5"),
        (["--memory-budget=tpu=1GiB"], "or of 'gpu:<number>', not of 'tpu'"),
        (["--memory-budget=gpu:1=1GiB,gpu:01=2GiB"], "memory budget of 'gpu:01' is given twice"),
        (["--memory-budget=host="], "is a number of bytes, or like 48GiB or 80GB. Got "),
        (["--host-policy=a,b=c"], "Unsupported host policy setting 'b' is specified"),
        (["--grpc-restricted-protocol=nope:k=v"], "unknown restricted protocol 'nope' "),
        (["--http-restricted-api=metrics:k=v"], "unknown restricted api 'metrics' "),
        (
            ["--openai-restricted-api=trace:k=v"],
            "unknown restricted api 'trace' ; groups are inference, model-repository, health,",
        ),
        (["--openai-alias=a"], "--openai-alias option format is '<alias>=<model>'. Got a"),
        (["--openai-alias=a=b", "--openai-alias=a=c"], "'a' is an alias of 'b' already"),
        (["--openai-alias=a=b", "--openai-alias=b=c"], "'b' is an alias too, of 'c'"),
        (["--openai-alias=a=a"], "--openai-alias=a=a has no effect"),
        (["--openai-allow-origin=http://a/b"], "an origin is like http://localhost:3000, without"),
        (
            ["--http-restricted-api=health:k=v", "--http-restricted-api=metadata,health:k=w"],
            "restricted api 'health' can not be specified in multiple config groups",
        ),
        (["--metrics-config=local,a=b"], "--metrics-config option format is <setting>=<value>."),
        (["--trace-config=triton,nope=1"], 'Bad option: "--trace-config triton,nope".'),
        (["--model-config-name="], "Error: empty argument for --model-config-name"),
        (["--grpc-transport=nope"], "invalid argument for --grpc-transport"),
    ],
)
def test_further_refusals(
    arguments: Sequence[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.tritonserver(arguments) == 1
    assert message in capsys.readouterr().err


@pytest.mark.contract("OA-16", "OA-22")
@pytest.mark.parametrize(
    ("option", "instead"),
    [
        ("--enable-kserve-frontends", "KServe is always served here, on --http-port and"),
        ("--kserve-http-port=8000", "it is --http-port here"),
        ("--kserve-grpc-port=8001", "it is --grpc-port here"),
        ("--tokenizer=gpt2", "the tokenizer is that of the model here"),
        ("--backend=vllm", "each model names its own backend here"),
        ("--tool-call-parser=llama3", "the object 'openai' in the model.json"),
    ],
)
def test_options_of_the_openai_frontend_are_refused_with_what_to_do_instead(
    option: str, instead: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.tritonserver(["--model-repository=/models", option]) == 1
    output = capsys.readouterr().err
    assert f"unrecognized option '{option}'" in output
    assert instead in output


@pytest.mark.contract("GT-04")
def test_the_number_of_handler_threads_is_checked_although_there_are_none() -> None:
    for count in (2, 128):
        flag = f"--grpc-infer-thread-count={count}"
        assert settings_of(flag).grpc.infer_thread_count == count
    assert settings_of().grpc.infer_thread_count == 2
    for count in (1, 129):
        with pytest.raises(UsageError, match="Must be in the range 2 to 128"):
            settings_of(f"--grpc-infer-thread-count={count}")
