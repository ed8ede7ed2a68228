"""The whole command line of `penstock perf`: defaults, every option, and what it refuses."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock_client.perf import arguments
from penstock_client.perf.load.plan import Limits, Point
from penstock_client.perf.options import (
    Options,
    Outputs,
    Prompts,
    RequestOptions,
    SequenceOptions,
    Target,
)
from penstock_client.perf.parser import command_parser
from penstock_client.perf.reading import read_options
from penstock_client.perf.requests.lengths import parse_lengths
from penstock_client.perf.requests.prompts import SharedPrefix
from penstock_client.perf.requests.tensors import TensorOptions
from penstock_client.perf.summary import Goal
from penstock_client.perf.wire.endpoint import Endpoint
from penstock_client.reading.address import Address

SERVER = Endpoint(
    "localhost", 8001, False, root_certificates="", certificate="", private_key="", unverified=False
)
PLAIN = Options(
    targets=[Target(SERVER)],
    request=RequestOptions("m", endpoint="infer", tensors=TensorOptions(False, {}, 128, "", 0, 1)),
    points=[Point(concurrency=1)],
    limits=Limits(),
    goals=[],
    outputs=Outputs(),
    rounds=10,
)


def read(*words: str) -> Options:
    return read_options(["-m", "m", *words], {})


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as ended:
        read(*words)
    assert ended.value.code == 2
    return capsys.readouterr().err.rpartition("error: ")[2].strip()


def test_without_options_all_is_as_the_help_says() -> None:
    assert read() == replace(PLAIN, words=("-m", "m"))


def limits(**changed: Any) -> Options:
    return replace(PLAIN, limits=replace(PLAIN.limits, **changed))


def request(**changed: Any) -> Options:
    return replace(PLAIN, request=replace(PLAIN.request, **changed))


def tensors(**changed: Any) -> Options:
    return request(tensors=replace(PLAIN.request.tensors, **changed))


def prompts(**changed: Any) -> Options:
    return request(prompts=Prompts(**changed))


def outputs(**changed: Any) -> Options:
    return replace(PLAIN, outputs=Outputs(**changed))


def points(*points: Point) -> Options:
    return replace(PLAIN, points=list(points))


def server(port: int = 8001, **changed: Any) -> Options:
    target = Target(replace(SERVER, port=port))
    return replace(PLAIN, targets=[replace(target, **changed)])


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("-x 3", request(version="3")),
        ("--streaming", request(streamed=True)),
        ("-b 4", request(batch=4)),
        ("--batch-size 4", request(batch=4)),
        ("-H A:b:c --header D:", request(headers={"A": "b:c", "D": ""})),
        (
            "--request-parameter a:TRUE:bool --request-parameter b:c:d:string"
            " --request-parameter e:7:uint --request-parameter f:1.5:double",
            request(parameters={"a": True, "b": "c:d", "e": 7, "f": 1.5}),
        ),
        ("--shared-memory system", request(shared_memory=True)),
        ("--output-shared-memory-size 7", request(output_size=7)),
        ("--input-data some/file", request(input_file=Path("some/file"))),
        ("--input-data zero", tensors(zero=True)),
        ("--input-data random", PLAIN),
        ("--shape a:b:2,3 --shape c:0", tensors(shapes={"a:b": (2, 3), "c": (0,)})),
        ("--string-length 0", tensors(string_length=0)),
        ("--string-data abc", tensors(string="abc")),
        ("--input-count 9", tensors(count=9)),
        ("--prompt a --prompt b", prompts(texts=("a", "b"))),
        ("--prompt-count 7", prompts(count=7)),
        ("--shared-prefix 5:2", prompts(prefix=SharedPrefix(5, 2))),
        ("--shared-prefix 0", prompts(prefix=SharedPrefix(0, 1))),
        ("--extra-body {}", PLAIN),
        ('--extra-body {"a":1}', request(extra={"a": 1})),
        ("-c 3", points(Point(concurrency=3))),
        ("-c 1:5:2", points(*(Point(concurrency=n) for n in (1, 3, 5)))),
        ("-c 4,2", points(Point(concurrency=4), Point(concurrency=2))),
        ("-r 0.5", points(Point(rate=0.5))),
        (
            "-r 1:2:0.5 --distribution poisson",
            points(*(Point(rate=r, poisson=True) for r in (1, 1.5, 2))),
        ),
        ("-d 0", limits(duration=0.0)),
        ("--warmup 0.5", limits(warmup=0.5)),
        ("-n 7", limits(requests=7, warmup=0.0)),
        ("-n 7 --warmup 3", limits(requests=7, warmup=0.0)),
        ("--stable", limits(stability=10.0)),
        ("--stable 2.5", limits(stability=2.5)),
        ("--window 0.1", limits(window=0.1)),
        ("--max-windows 3", limits(most_windows=3)),
        ("--drain 2", limits(drain=2.0)),
        ("--timeout 2", limits(timeout=2.0)),
        ("--max-in-flight 2", limits(most_in_flight=2)),
        ("-p 2", limits(processes=2)),
        ("--connections 2", limits(connections=2)),
        (
            "--sequences 4 --sequence-length 3 --sequence-length-variation 0"
            " --sequence-id-range 5:9",
            replace(
                request(sequences=SequenceOptions(4, 3, 0.0, 5, 4)), points=[Point(concurrency=4)]
            ),
        ),
        (
            "--sequence-id-range 5",
            request(sequences=SequenceOptions(first_id=5, ids=1 << 31)),
        ),
        ("--goodput ttft:5", replace(PLAIN, goals=[Goal("time_to_first_token", 5.0)])),
        (
            "--goodput inter_token_latency:0.5",
            replace(PLAIN, goals=[Goal("inter_token_latency", 0.5)]),
        ),
        ("--rounds 2", replace(PLAIN, rounds=2)),
        ("--gate a", outputs(gate=Path("a"))),
        ("--json -", outputs(json=Path("-"))),
        (
            "-f a --html b --requests-csv c -q",
            outputs(csv=Path("a"), html=Path("b"), requests=Path("c"), quiet=True),
        ),
        ("-u h:1", server(1, endpoint=replace(SERVER, host="h", port=1))),
        ("--metrics-url h", server(metrics=Address("h", 8002, False))),
        ("--metrics-url h:1/metrics", server(metrics=Address("h", 1, False))),
        ("--metrics-url h:1/other", server(metrics=Address("h", 1, False, "/other"))),
        ("--server-pid 7", server(pid=7)),
        (
            "--tls-ca a --tls-cert b --tls-key c --tls-unverified",
            server(
                endpoint=replace(
                    SERVER,
                    root_certificates="a",
                    certificate="b",
                    private_key="c",
                    unverified=True,
                )
            ),
        ),
    ],
)
def test_an_option_changes_what_it_says_and_nothing_else(words: str, options: Options) -> None:
    found = read(*words.split())
    assert found.words == ("-m", "m", *words.split())
    assert replace(found, words=()) == options


def test_lengths_are_drawn_as_they_are_written() -> None:
    found = read("--prompt-words", "12", "--output-tokens", "uniform:1:2").request.prompts
    assert found.words is not None
    assert found.output is not None
    assert (found.words.text, found.output.text) == ("12", "uniform:1:2")


def test_a_seed_is_that_of_all_that_is_random() -> None:
    found = read("--seed", "7")
    assert (found.request.seed, found.request.tensors.seed, found.limits.seed) == (7, 7, 7)


def test_two_servers_may_each_have_a_process() -> None:
    found = read("--compare", "a", "https://b:2", "--server-pid", "5", "--server-pid", "6")
    assert [
        (each.endpoint.host, each.endpoint.port, each.endpoint.secure, each.pid)
        for each in found.targets
    ] == [
        ("a", 8001, False, 5),
        ("b", 2, True, 6),
    ]


@pytest.mark.parametrize(
    ("words", "wire", "endpoint", "port"),
    [
        ("-i http", "http", "infer", 8000),
        ("-i http --endpoint generate --streaming", "http", "generate", 8000),
        ("-i openai", "openai", "chat", 8000),
        ("-i openai --endpoint embeddings --streaming", "openai", "embeddings", 8000),
        ("-i grpc", "grpc", "infer", 8001),
    ],
)
def test_a_protocol_has_its_endpoints_and_port(
    words: str, wire: str, endpoint: str, port: int
) -> None:
    found = read(*words.split())
    assert (found.request.wire, found.request.endpoint) == (wire, endpoint)
    assert found.request.streamed is ("--streaming" in words)
    assert found.targets[0].endpoint.port == port


@pytest.mark.parametrize(
    ("words", "json_inputs", "json_outputs"),
    [
        ("--input-tensor-format json", True, None),
        ("--input-tensor-format binary", False, None),
        ("--output-tensor-format json", None, True),
    ],
)
def test_tensors_go_as_the_server_takes_them_unless_said_otherwise(
    words: str, json_inputs: bool | None, json_outputs: bool | None
) -> None:
    found = read("-i", "http", *words.split()).request
    assert (found.json_inputs, found.json_outputs) == (json_inputs, json_outputs)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("-c 1 -r 1", "--concurrency and --rate exclude each other"),
        ("-r 1 --intervals f", "--rate and --intervals exclude each other"),
        ("--endpoint chat", "-i grpc has no --endpoint chat: infer"),
        ("-i http --endpoint chat", "-i http has no --endpoint chat: infer, generate"),
        ("-i http --streaming", "-i http streams with --endpoint generate only"),
        (
            "-i openai --shared-memory system",
            "--shared-memory is for inference requests of tensors",
        ),
        (
            "-i http --endpoint generate --shared-memory system",
            "--shared-memory is for inference requests of tensors",
        ),
        ("--extra-body [1]", "--extra-body is not an object of JSON"),
        ("--extra-body {", "--extra-body is not JSON: Expecting property name"),
        ("--prompt-file nowhere", "nowhere: [Errno 2] No such file or directory: 'nowhere'"),
        ("-n 0", "'0' is not a whole number from 1 on"),
        ("--rounds 1", "'1' is not a whole number from 2 on"),
        ("--max-windows 2", "'2' is not a whole number from 3 on"),
        ("--string-length -1", "'-1' is not a whole number from 0 on"),
        ("-d x", "'x' is not a number of seconds"),
        ("-d nan", "'nan' is not a number of seconds"),
        ("-d inf", "'inf' is not a number of seconds"),
        ("--window 0.09", "'0.09' is not a number of seconds from 0.1 on"),
        ("--stable x", "'x' is not a number of percent"),
        ("-c 1.5", "'1.5' is not one or more whole numbers: write 4, 1,2,4 or 1:8:1"),
        ("-c 0", "'0' is not one or more numbers: write 4, 1,2,4 or 1:8:1"),
        ("-r 2:1", "'2:1' is not one or more numbers"),
        ("-r 1:2:0", "'1:2:0' is not one or more numbers"),
        ("-r 1:2:1:1", "'1:2:1:1' is not one or more numbers"),
        ("-r inf", "'inf' is not one or more numbers"),
        ("-r 1:1e300", "'1:1e300' is more than 1000 loads"),
        ("-c 1:1001", "'1:1001' is more than 1000 loads"),
        ("-H A", "'A' is not a header: write NAME:VALUE"),
        ("-H :a", "':a' is not a header: write NAME:VALUE"),
        ("--shape a", "'a' is not a shape: write INPUT:4,16"),
        ("--shape a:1,x", "'a:1,x' is not a shape"),
        ("--shape :1", "':1' is not a shape"),
        (
            "--request-parameter a:1:float",
            "'a:1:float' is not a parameter: write NAME:VALUE:TYPE, with one of bool, int, uint,"
            " double, string",
        ),
        ("--request-parameter :1:int", "':1:int' is not a parameter"),
        ("--request-parameter a:maybe:bool", "'a:maybe:bool' is not a parameter"),
        ("--request-parameter a:x:int", "'a:x:int' is not a parameter"),
        ("--shared-prefix x", "'x' is not a shared prefix: write WORDS or WORDS:COUNT"),
        ("--shared-prefix 5:0", "'5:0' is not a shared prefix"),
        ("--shared-prefix 5:x", "'5:x' is not a shared prefix"),
        (
            "--goodput p50:1",
            "'p50:1' is not a limit: write one of ttft, itl, latency, tokens_per_second and its"
            " value",
        ),
        ("--goodput ttft:0", "'ttft:0' is not a limit"),
        ("--goodput ttft:x", "'ttft:x' is not a limit"),
        ("--goodput ttft:inf", "'ttft:inf' is not a limit"),
        ("--sequence-id-range x", "'x' is not a range: write FIRST or FIRST:END"),
        ("--sequence-id-range 5:5", "'5:5' is not a range"),
        ("--sequence-id-range 5:x", "'5:x' is not a range"),
        ("--metrics-url a:b:c", "'a:b:c' is not an address"),
        ("--rat 5", "unrecognized arguments: --rat"),
    ],
)
def test_what_is_wrong_is_said(
    words: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert problem in refusal(capsys, *words.split())


def test_a_thousand_loads_are_the_most() -> None:
    assert len(arguments.numbers("1:1000")) == 1000
    assert arguments.numbers("0.1:0.3:0.1") == pytest.approx((0.1, 0.2, 0.3))


@pytest.mark.parametrize("read", [arguments.seconds, arguments.percentage])
def test_nothing_may_be_a_number_of_something(read: Callable[[str], float]) -> None:
    assert read("0") == 0.0
    with pytest.raises(ValueError, match=r"'-0\.1' is not a number of"):
        read("-0.1")


def test_a_whole_number_is_one_from_the_least_on() -> None:
    assert arguments.whole(3)("3") == 3
    with pytest.raises(ArgumentTypeError):
        arguments.whole(3)("2")


def test_a_line_of_a_header_ends_no_other() -> None:
    assert arguments.header(" a : b ") == ("a", "b")
    with pytest.raises(ValueError, match="is not a header"):
        arguments.header("a:b\r\nc:d")


def test_prompts_of_a_file_follow_those_of_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "prompts"
    file.write_text("one\n\n  \ntwo\n")
    assert read("--prompt", "zero", "--prompt-file", str(file)).request.prompts.texts == (
        *("zero", "one"),
        "two",
    )
    file.write_text(" \n")
    assert refusal(capsys, "--prompt-file", str(file)) == f"{file}: there is no prompt in it"


def test_intervals_and_traces_are_files(tmp_path: Path) -> None:
    file = tmp_path / "intervals"
    file.write_text("1000\n3000\n")
    assert read("--intervals", str(file)).points == [Point(gaps=(0.001, 0.003))]
    file.write_text('{"timestamp": 10}\n{"timestamp": 30, "input_length": 5, "output_length": 6}\n')
    traced = read("--trace", str(file))
    assert traced.points == [Point(times=(0.0, 0.02))]
    assert (traced.limits.requests, traced.limits.warmup) == (2, 0.0)
    assert not traced.request.streamed
    assert read("--trace", str(file), "-i", "openai").request.streamed
    assert read("--trace", str(file), "-n", "1").limits.requests == 1


@pytest.mark.parametrize(
    "given",
    [
        {"texts": ("a",)},
        {"words": parse_lengths("1")},
        {"output": parse_lengths("1")},
        {"prefix": SharedPrefix(1, 1)},
        {"lengths": ((1, 1),)},
    ],
)
def test_any_of_these_makes_requests_of_prompts(given: dict[str, Any]) -> None:
    assert Prompts(**given).wanted
    assert not Prompts(count=5).wanted


def test_files_are_those_that_are_written() -> None:
    named = Outputs(Path("-"), Path("b"), Path("c"), Path("d"), gate=Path("e"))
    assert [*named.files] == [Path("b"), Path("c"), Path("d")]
    assert [*Outputs(Path("a")).files] == [Path("a")]


def test_options_are_not_abbreviated() -> None:
    assert not command_parser().allow_abbrev
