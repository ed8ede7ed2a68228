"""The command line: what `tritonserver` accepts, refuses and says, and what is our own."""

import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import recorded
from penstock import __version__, cli
from penstock.cli.flags import FLAGS
from penstock.cli.missing import MISSING
from penstock.cli.reading import UsageError, default, read
from penstock.core.measurement import Quantile
from penstock.settings import Feature, ModelControlMode, RateLimitResource, Restriction, Settings

SERVED = 99


@dataclass(frozen=True)
class Start:
    """One start of the real server: what it was given, what it said, and how it ended."""

    arguments: list[str]
    output: str
    end: str


def starts() -> list[Start]:
    text = recorded.log("cli_errors.txt")
    found = re.findall(r"^\$ tritonserver ?(.*)\n((?:.*\n)*?)=> (.*)$", text, re.MULTILINE)
    return [Start(shlex.split(line), output.strip(), end) for line, output, end in found]


# The real server gives up on these after its command line was accepted.
AT_START = re.compile(r"^E\d* |creating server: Internal|unable to find 'libtritoncache_")
# Ports that cannot exist, with which the real server starts and serves nothing.
IMPOSSIBLE = ("--http-port=70000", "--http-port=-1")
# Settings of metrics that mean nothing there, and are ignored.
MEANINGLESS = ("--metrics-config=nope=true", "--metrics-config=counter_latencies=nope")


def cases(refused: bool) -> list[Any]:
    chosen = [
        start
        for start in starts()
        if not {*IMPOSSIBLE, *MEANINGLESS} & set(start.arguments)
        and refused == (start.end == "exit status 1" and not AT_START.search(start.output))
    ]
    unknown = pytest.param(Start([], "", ""), marks=recorded.needs_answers)
    return [pytest.param(start, id=" ".join(start.arguments[-2:])) for start in chosen] or [unknown]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """The settings with which serving began, in place of serving."""
    seen: list[Settings] = []

    def run(settings: Settings) -> int:
        seen.append(settings)
        return SERVED

    app = ModuleType("penstock.app")
    app.run = run  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "penstock.app", app)
    return seen


def settings_of(*arguments: str, environment: dict[str, str] | None = None) -> Settings:
    return read(["--model-repository=r", *arguments], environment or {}, lambda _: None)


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
def test_what_tritonserver_starts_with_is_accepted_or_refused_by_name(
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


@pytest.mark.contract("CL-01")
def test_serve_and_tritonserver_are_the_same(served: list[Settings]) -> None:
    arguments = ["--model-repository", "r", "--http-port", "9000"]
    assert cli.tritonserver(arguments) == SERVED
    assert cli.main(["serve", *arguments]) == SERVED
    assert served[0] == served[1]


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
        (["--host-policy=a,b=c"], "Unsupported host policy setting 'b' is specified"),
        (["--grpc-restricted-protocol=nope:k=v"], "unknown restricted protocol 'nope' "),
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


@pytest.mark.contract("GT-04")
def test_the_number_of_handler_threads_is_checked_although_there_are_none() -> None:
    for count in (2, 128):
        flag = f"--grpc-infer-thread-count={count}"
        assert settings_of(flag).grpc.infer_thread_count == count
    assert settings_of().grpc.infer_thread_count == 2
    for count in (1, 129):
        with pytest.raises(UsageError, match="Must be in the range 2 to 128"):
            settings_of(f"--grpc-infer-thread-count={count}")


@pytest.mark.contract("CL-48")
def test_settings_of_backends_are_grouped_by_name() -> None:
    settings = settings_of(
        "--backend-config=default-max-batch-size=8",
        "--backend-config=python,shm-region-prefix-name=p",
        "--backend-config=python,default-max-batch-size=2",
    )
    assert settings.backends.of("python") == {
        "default-max-batch-size": "2",
        "shm-region-prefix-name": "p",
    }
    assert settings.backends.of("vllm") == {"default-max-batch-size": "8"}


@pytest.mark.contract("CL-39")
def test_compound_values() -> None:
    settings = settings_of(
        "--rate-limit-resource=R1:4",
        "--rate-limit-resource=r2:2:1",
        "--cuda-memory-pool-byte-size=0:5",
        "--model-load-gpu-limit=1:0.5",
        "--metrics-config=summary_quantiles=0.5:0.05,0.9:0.01",
        "--grpc-restricted-protocol=model-config,trace:key=va=lue",
    )
    resources = (RateLimitResource("R1", 4), RateLimitResource("r2", 2, 1))
    assert settings.rate_limit.resources == resources
    assert settings.devices.cuda_memory_pool_byte_size == {0: 5}
    assert settings.devices.load_limits == {1: 0.5}
    quantiles = (Quantile(0.5, 0.05), Quantile(0.9, 0.01))
    assert settings.metrics.latencies.summary_quantiles == quantiles
    assert settings.grpc.restrictions == (
        Restriction(frozenset({Feature.MODEL_CONFIG, Feature.TRACE}), "key", "va=lue"),
    )


@pytest.mark.contract("CL-35", "ME-01")
def test_metrics_listen_where_http_does_unless_told_otherwise() -> None:
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


@pytest.mark.contract("CL-37")
def test_trace_config_wins_over_its_deprecated_forms() -> None:
    warnings: list[str] = []
    arguments = ["--model-store=r", "--trace-config=rate=6", "--trace-rate=5", "--trace-count=2"]
    trace = read(arguments, {}, warnings.append).trace
    assert (trace.rate, trace.count) == (6, 2)
    assert warnings[-1] == (
        "Warning: Overriding deprecated '--trace-rate' in favor of provided rate value in "
        "--trace-config!"
    )


def test_trace_levels_add_up_and_off_clears_them() -> None:
    levels = ["--trace-config=level=TIMESTAMPS", "--trace-config=level=tensors"]
    assert settings_of(*levels).trace.levels == {"TIMESTAMPS", "TENSORS"}
    assert settings_of(*levels, "--trace-config=level=off").trace.levels == frozenset()


def test_settings_of_opentelemetry_keep_their_order() -> None:
    trace = settings_of(
        "--trace-config=mode=opentelemetry",
        "--trace-config=opentelemetry,resource=a=b",
        "--trace-config=opentelemetry,resource=c=d",
    ).trace
    assert trace.mode == "opentelemetry"
    assert trace.opentelemetry == (("resource", "a=b"), ("resource", "c=d"))


@pytest.mark.contract("CL-33")
def test_vertex_ai_speaks_through_the_environment() -> None:
    environment = {"AIP_MODE": "PREDICTION", "AIP_HTTP_PORT": "81", "AIP_STORAGE_URI": "s"}
    settings = read(["--allow-grpc=true"], environment, lambda _: None)
    assert settings.vertex.enabled
    assert settings.vertex.port == 81
    assert (settings.http.enabled, settings.grpc.enabled) == (False, True)
    assert settings.repository.paths == ("s",)


def test_the_environment_turns_escaping_and_gpus_off() -> None:
    environment = {"TRITON_SERVER_ESCAPE_LOG_MESSAGES": "0", "TRITON_SERVER_CPU_ONLY": "1"}
    settings = settings_of(environment=environment)
    assert not settings.logging.escape
    assert settings.devices.cpu_only


@pytest.mark.parametrize("row", MISSING, ids=lambda row: row.flag)
def test_rows_of_the_table_of_missing_features_name_options_and_fields(row: Any) -> None:
    assert row.flag.split()[0] in FLAGS
    default(row.field)


@pytest.mark.contract("CL-01")
@recorded.needs_answers
def test_every_recorded_option_of_tritonserver_is_known() -> None:
    text = recorded.log("tritonserver-help.txt")
    names = set(re.findall(r"^  --([\w-]+)", text, re.MULTILINE))
    assert names - {"help"} <= FLAGS.keys()


@pytest.mark.contract("CL-01")
def test_help_lists_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.tritonserver(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"  --{name}" in text for name in FLAGS)


def test_h_alone_is_help() -> None:
    assert cli.main(["serve", "-h"]) == 0


def test_help_comes_before_later_mistakes_and_after_earlier_ones() -> None:
    assert cli.tritonserver(["--help", "--nope"]) == 0
    assert cli.tritonserver(["--nope", "--help"]) == 1


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"penstock {__version__}\n"


def test_an_unknown_command_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["nope"]) == 1
    assert "unknown command 'nope'" in capsys.readouterr().err


def pretend_demo(monkeypatch: pytest.MonkeyPatch, write: Callable[..., None]) -> None:
    demo = ModuleType("penstock.demo")
    demo.write_demo = write  # type: ignore[attr-defined]
    demo.DemoError = RuntimeError  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "penstock.demo", demo)


def test_demo_writes_where_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[tuple[Path, str]] = []
    pretend_demo(monkeypatch, lambda path, *, llm, report: written.append((path, llm)))
    assert cli.main(["demo", "somewhere", "--llm", "vllm"]) == 0
    assert written == [(Path("somewhere"), "vllm")]


def test_demo_says_why_it_failed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no space")

    pretend_demo(monkeypatch, fail)
    assert cli.main(["demo", "somewhere"]) == 1
    assert capsys.readouterr().err == "penstock demo: no space\n"


@pytest.mark.parametrize("command", [["--help"], ["--version"], ["serve", "--help"]], ids=" ".join)
def test_help_imports_nothing_heavy(command: list[str]) -> None:
    """A fresh interpreter, since this one has imported everything."""
    program = (
        "import sys, penstock.cli; status = penstock.cli.main(sys.argv[1:]);"
        "print(*sorted({name.split('.')[0] for name in sys.modules}), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *command], capture_output=True, text=True, check=True
    )
    heavy = "asyncio google grpc numpy onnxruntime openvino prometheus_client starlette uvloop"
    assert not set(done.stderr.split()) & set(heavy.split())


@pytest.mark.contract("CL-38", "RC-01")
def test_a_cache_has_settings() -> None:
    settings = settings_of("--cache-config=redis,host=h", "--cache-config=redis,port=6379")
    assert settings.cache.config == {"redis": {"host": "h", "port": "6379"}}


@pytest.mark.contract("CL-38", "RC-10")
def test_the_older_flag_asks_for_the_local_cache() -> None:
    assert settings_of("--response-cache-byte-size=5").cache.config == {"local": {"size": "5"}}
