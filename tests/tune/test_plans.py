"""The whole command line of `penstock tune`: defaults, every option, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock_client.perf.gate import Limit
from penstock_client.perf.load.plan import Point
from penstock_client.tune.choice import Aims, Objective
from penstock_client.tune.errors import TuneError
from penstock_client.tune.load.loads import Load, Loads
from penstock_client.tune.options import Budget, Member, Plan, Serving, Trials
from penstock_client.tune.reading import read_plans, server_flag

POWERS = tuple(1 << n for n in range(9))
PLAIN = Plan(
    model="m",
    repositories=(Path("r"),),
    output=Path("tuned/m"),
    mode="quick",
    values={},
    loads=Loads(tuple(Load(Point(concurrency=n), 1) for n in POWERS), True),
    aims=Aims(()),
    perf=("--duration=5", "--warmup=1"),
)


@pytest.fixture(autouse=True)
def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_URL", raising=False)


def read(*words: str) -> Plan:
    (plan,) = read_plans(["m", "--model-repository", "r", *words])
    return plan


def refusal(capsys: pytest.CaptureFixture[str], words: list[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        read_plans(words)
    assert ended.value.code == 2
    return capsys.readouterr().err.rpartition("error: ")[2].strip()


def test_without_options_all_is_as_the_help_says() -> None:
    assert read() == PLAIN
    assert PLAIN.name == "m"


def loads(*points: Point, rows: tuple[int, ...] = (1,), sweep: bool = False) -> Plan:
    return replace(PLAIN, loads=Loads(tuple(Load(p, r) for r in rows for p in points), sweep))


def aims(*limits: Limit, **changed: Any) -> Plan:
    return replace(PLAIN, aims=Aims((), limits, **changed))


def closed(*numbers: int) -> tuple[Point, ...]:
    return tuple(Point(concurrency=n) for n in numbers)


@pytest.mark.parametrize(
    ("words", "plan"),
    [
        ("--output o", replace(PLAIN, output=Path("o/m"))),
        ("--model-store s", replace(PLAIN, repositories=(Path("r"), Path("s")))),
        ("--mode brute", replace(PLAIN, mode="brute")),
        ("--variants 1", replace(PLAIN, budget=Budget(1, 0.0))),
        ("--patience 1", replace(PLAIN, trials=Trials(patience=1))),
        ("--budget 2h", replace(PLAIN, budget=Budget(0, 7200.0))),
        ("--rounds 0", replace(PLAIN, rounds=0)),
        ("--top 0", replace(PLAIN, top=0)),
        ("--resume -q", replace(PLAIN, resume=True, quiet=True)),
        ("--patience 4", replace(PLAIN, trials=Trials(patience=4))),
        ("--trials 3-9", replace(PLAIN, trials=Trials(0.0, 0.0, 3, 9, 10))),
        ("--instances 1-3", replace(PLAIN, values={"instances": (1, 2, 3)})),
        ("-c 3 5", loads(*closed(3, 5))),
        ("-c 3 --client-batch-sizes 1 2", loads(*closed(3), rows=(1, 2))),
        ("--client-batch-sizes 4", loads(*closed(*POWERS), rows=(4,), sweep=True)),
        ("--client-batch-sizes 4 8", loads(*closed(*POWERS), rows=(4, 8))),
        ("--sweep 3-16", loads(*closed(4, 8, 16), sweep=True)),
        ("--sweep 5-7", loads(*closed(5), sweep=True)),
        ("-r 5 7", loads(Point(rate=5.0), Point(rate=7.0))),
        ("-d 2", replace(PLAIN, perf=("--duration=2", "--warmup=1"))),
        ("--warmup 0.5", replace(PLAIN, perf=("--duration=5", "--warmup=0.5"))),
        ("-- --shape IN:3", replace(PLAIN, perf=(*PLAIN.perf, "--shape", "IN:3"))),
        ("--max-p99 20ms", aims(Limit("latency_ms.p99", None, 20.0))),
        ("--max-ttft 1s", aims(Limit("ttft_ms.p99", None, 1000.0))),
        ("--max-itl 5ms", aims(Limit("per_token_ms.p99", None, 5.0))),
        ("--max-memory 1GiB", aims(Limit("memory_bytes", None, float(1 << 30)))),
        ("--max-gpu-memory 1GiB", aims(Limit("gpu_memory_bytes", None, float(1 << 30)))),
        ("--min-throughput 5", aims(Limit("inferences_per_second", 5.0, None))),
        ("--min-goodput 5", aims(Limit("goodput", 5.0, None))),
        (
            "--objective throughput --objective p99:2",
            replace(
                PLAIN,
                aims=Aims(
                    (
                        Objective("throughput", ("inferences_per_second",), 1.0),
                        Objective("p99", ("latency_ms.p99",), -2.0),
                    )
                ),
            ),
        ),
        (
            "--goodput ttft:5",
            replace(
                PLAIN,
                aims=Aims((Objective("goodput", ("goodput",)),)),
                perf=(*PLAIN.perf, "--goodput=time_to_first_token:5"),
            ),
        ),
        (
            "--server-flag http_thread_count=1 --env A=b=c --load-timeout 1m",
            replace(PLAIN, serving=Serving(("--http-thread-count=1",), {"A": "b=c"}, 60.0)),
        ),
        ("--composing a", replace(PLAIN, parts=("a",))),
    ],
)
def test_an_option_changes_what_it_says_and_nothing_else(words: str, plan: Plan) -> None:
    assert read(*words.split()) == plan


def test_dimensions_have_their_names() -> None:
    words = (
        "--batch-sizes 4 8 --queue-delays 0 off --cache on off --parameter a=1,true --engine b=2"
        " --field c.d=3"
    )
    values = read(*words.split()).values
    assert values == {
        "max_batch_size": (4, 8),
        "queue_delay": ("off", 0),
        "cache": (True, False),
        "parameter.a": ("1", "true"),
        "engine.b": (2,),
        "c.d": (3,),
    }


def test_several_models_are_tuned_one_after_the_other_or_together() -> None:
    words = ["a", "b", "a", "--model-repository", "r"]
    assert [(plan.model, plan.output) for plan in read_plans(words)] == [
        ("a", Path("tuned/a")),
        ("b", Path("tuned/b")),
    ]
    weights = ["--weight", "b=2", "--instances", "1-2", "--composing", "part"]
    (both,) = read_plans([*words, "--together", *weights])
    assert (both.name, both.output, both.parts) == ("a+b", Path("tuned/a+b"), ("b", "part"))
    assert both.together == (Member("a", PLAIN.perf), Member("b", PLAIN.perf))
    assert both.aims.weights == {"b": 2.0}
    assert both.values == {"instances": (1, 2), "b/instances": (1, 2)}


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("", "name a model"),
        ("m", "--model-repository is needed, the folder in which the model's folder is; or --url,"),
        ("m --model-repository r --together", "--together is for several models"),
        (
            "a b --model-repository r --together --weight c=1",
            "--weight c: it is not one of a, b",
        ),
        ("m --model-repository r -c 1 -r 1", "--concurrency and --rate exclude each other"),
        ("m --model-repository r -c 1 --sweep 1-2", "--concurrency and --sweep exclude each other"),
        (
            "m --model-repository r --objective goodput",
            "--objective goodput needs --goodput, which says what is good",
        ),
        (
            "m --model-repository r -- -c 5",
            "-c cannot stand behind --: penstock tune sets it itself",
        ),
        (
            "m --model-repository r -- --rate=5",
            "--rate=5 cannot stand behind --: penstock tune sets it itself",
        ),
        ("m --model-repository r --remote-http h", "--remote-http is for --remote"),
        ("m --model-repository r --remote-metrics h", "--remote-metrics is for --remote"),
        *(
            (
                f"m -u h {words}",
                f"{name} is for servers that penstock tune starts, not for --remote",
            )
            for words, name in (
                ("--server-flag id=a", "--server-flag"),
                ("--env A=b", "--env"),
                ("--max-memory 1GiB", "--max-memory"),
                ("--objective memory", "--objective memory"),
                ("--objective cpu", "--objective cpu"),
            )
        ),
        ("m -u h:x:y", "'h:x:y' is not an address"),
        ("m --variants 0", "argument --variants: '0' is not a whole number from 1 on"),
        ("m --patience 0", "argument --patience: '0' is not a whole number from 1 on"),
        ("m --rounds -1", "argument --rounds: '-1' is not a whole number from 0 on"),
        ("m --top -1", "argument --top: '-1' is not a whole number from 0 on"),
        (
            "m --model-repository r --server-flag model_repository=a",
            "--server-flag model_repository: penstock tune sets it itself",
        ),
    ],
)
def test_what_is_wrong_is_said(
    words: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refusal(capsys, words.split()).startswith(problem)


@pytest.mark.parametrize("name", ["http-port", "--metrics_address", "log-file", "load-model"])
def test_flags_that_tune_needs_itself_are_refused(name: str) -> None:
    assert server_flag("--log_verbose", "1") == "--log-verbose=1"
    with pytest.raises(TuneError, match=f"--server-flag {name}: penstock tune sets it itself"):
        server_flag(name, "1")


def test_a_server_that_runs_has_three_ports() -> None:
    (plan,) = read_plans(["m", "-u", "h:1"])
    remote = plan.remote
    assert remote is not None
    assert (remote.grpc.authority, remote.http.authority) == ("h:1", "h:8000")
    assert (remote.metrics.host, remote.metrics.port) == ("h", 8002)
    named = ["--remote-http", "i:5", "--remote-metrics", "j:6"]
    (plan,) = read_plans(["m", "-u", "h", *named])
    assert plan.remote is not None
    assert (plan.remote.grpc.port, plan.remote.http.authority) == (8001, "i:5")
    assert (plan.remote.metrics.host, plan.remote.metrics.port) == ("j", 6)


@pytest.mark.parametrize(
    ("size", "bounds"),
    [(3, (3, 3)), (40, (5, 20)), (100, (5, 20)), (300, (15, 30)), (1000, (50, 100))],
)
def test_optuna_tries_a_share_of_the_space_and_some_at_least(
    size: int, bounds: tuple[int, int]
) -> None:
    assert Trials().bounds(size) == bounds
    assert Trials(least_share=0, most_share=0, least=30, most=4).bounds(100) == (30, 30)


def test_what_is_on_the_command_line_counts_more_than_a_file(tmp_path: Path) -> None:
    file = tmp_path / "analyzer.yaml"
    file.write_text("model_repository: /models\nprofile_models: m\nconcurrency: [2, 4]\n")
    (plan,) = read_plans(["-f", str(file)])
    assert [load.point.concurrency for load in plan.loads.all] == [2, 4]
    (plan,) = read_plans(["-f", str(file), "-r", "5"])
    assert [load.point.rate for load in plan.loads.all] == [5.0]
    assert plan.repositories == (Path("/models"),)
