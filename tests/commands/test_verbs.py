"""The commands that ask a running server: what they print, and their exit status."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.serving import Served, wait_until
from penstock import cli
from penstock.cli.installed_commands import installed_commands
from penstock_client.client import Client

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(server: Served, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command: its exit status, output and errors."""

    def run(*words: str) -> tuple[int, str, str]:
        status = cli.main(words)
        return (status, *capsys.readouterr())

    return run


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    """Sets what the command reads from standard input."""
    return lambda data: monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_infer_prints_outputs(run: Run) -> None:
    status, text, _ = run("infer", "copy", "NUMBERS=1,2,3,4", "TEXT=hello", "--output=TEXT")
    assert (status, text) == (0, "TEXT  BYTES [1, 1]\nhello\n")
    status, text, _ = run("infer", "copy", "NUMBERS=[[1, 2], [3, 4]]", "--output=NUMBERS")
    assert text == "NUMBERS  FP32 [1, 2, 2]\n[[[1., 2.],\n  [3., 4.]]]\n"


@pytest.mark.parametrize("at", range(4))
def test_options_stand_anywhere(run: Run, at: int) -> None:
    words = ["copy", "NUMBERS=1,2,3,4", "TEXT=hello"]
    words[at:at] = ["--output", "TEXT"]
    assert run("infer", *words)[:2] == (0, "TEXT  BYTES [1, 1]\nhello\n")


def test_infer_prints_json(run: Run) -> None:
    words = ["infer", "copy", 'TEXT=["a", "b"]', "HALF=1.5", "--json", "--id=x"]
    status, text, _ = run(*words, "--output=TEXT", "--output=HALF", "--parameter=n=1")
    told = json.loads(text)
    assert (status, told["model"], told["id"]) == (0, "copy", "x")
    assert told["outputs"]["TEXT"] == {"datatype": "BYTES", "shape": [1, 2], "data": ["a", "b"]}
    assert told["outputs"]["HALF"]["data"] == [1.5]


@pytest.mark.parametrize("words", [["generate", "story", "--lines"], ["embed", "length"]])
def test_standard_input_that_is_not_text_is_told(
    run: Run, stdin: Callable[[bytes], None], words: list[str]
) -> None:
    stdin(b"caf\xe9\n")
    status, _, error = run(*words)
    assert status == 2
    assert "only text in UTF-8 can be sent" in error


def test_infer_reads_files_and_standard_input(
    run: Run, tmp_path: Path, stdin: Callable[[bytes], None]
) -> None:
    np.save(tmp_path / "n.npy", np.ones((1, 2, 2), np.float32))
    (tmp_path / "image").write_bytes(b"\xff\0")
    words = ["infer", "copy", f"NUMBERS=@{tmp_path}/n.npy", f"TEXT=@{tmp_path}/image", "--json"]
    _, text, _ = run(*words, "--output=NUMBERS", "--output=TEXT")
    outputs = json.loads(text)["outputs"]
    assert outputs["NUMBERS"]["data"] == [1, 1, 1, 1]
    assert outputs["TEXT"]["data"] == [{"b64": "/wA="}]
    stdin(b"7\n")
    assert "[[7]]" in run("infer", "copy", "SMALL=@-", "--output=SMALL")[1]
    stdin(b"[text]\n")
    assert "[text]" in run("infer", "copy", "TEXT=@-", "--output=TEXT")[1]


def test_infer_without_inputs_shows_what_the_model_takes(run: Run) -> None:
    status, text, _ = run("infer", "copy")
    assert status == 0
    assert "NUMBERS" in text
    assert "[-1, 2, -1]" in text
    told = json.loads(run("infer", "copy", "--json")[1])
    shapes = {each["name"]: each["shape"] for each in told["inputs"]}
    assert shapes["NUMBERS"] == [-1, 2, -1]


def test_infer_streams(run: Run) -> None:
    words = ["infer", "repeat", "IN=5,6", "DELAY=0,0", "WAIT=0", "--stream", "--output=OUT"]
    assert run(*words)[1].splitlines() == ["OUT  INT32 [1]", "[5]", "OUT  INT32 [1]", "[6]"]


@pytest.mark.parametrize(
    ("words", "status", "problem"),
    [
        (["infer", "cpy", "A=1"], 1, "did you mean 'copy'?"),
        (["infer", "copy", "NUMBER=1"], 2, "did you mean 'NUMBERS'?"),
        (["infer", "copy", "SMALL=x"], 2, "give JSON, numbers between commas, or @FILE"),
        (["infer", "copy", "SMALL=300"], 2, "is not INT8"),
        (["infer", "copy", "SMALL=1", "SMALL=1"], 2, "is given twice"),
        (["infer", "copy", "NUMBERS=1,2,3"], 1, "unexpected shape"),
        (["infer", "copy", "SMALL=@/no/such/file"], 2, "No such file"),
        (["infer", "copy", "SMALL=" + "[" * 100_000], 2, "give JSON, numbers between commas"),
        (["infer", "copy", "SMALL=1.5"], 2, "is not INT8: 1.5 is of another type"),
        (
            ["infer", "story", "text_input=hello"],
            1,
            "; 'penstock generate story PROMPT' prints its text, --stream all its responses",
        ),
        (
            ["infer", "repeat", "IN=1", "DELAY=0", "WAIT=0"],
            1,
            "; --stream prints all its responses",
        ),
        (["generate", "repeat", "a"], 2, "takes no prompt"),
        (["generate", "length", "a"], 2, "has no output 'text_output'"),
        (["embed", "story", "a"], 2, "does not embed"),
        (["load", "nope"], 1, "failed to load 'nope'"),
        (["unload", "stry"], 1, "there is no model 'stry'"),
        (["unload", "stry"], 1, "did you mean 'story'?"),
        (["stats", "nope"], 1, "The server has: copy"),
        (["wait", "nope", "--timeout=2"], 4, "model 'nope' was not ready within 2 s"),
        (["models", "-u", "localhost:1"], 3, "no server answers at localhost:1"),
        (["models", "--url=localhost:1"], 3, "no server answers at localhost:1"),
        (["wait", "--url=localhost:1", "--timeout=0.3"], 4, "the server was not ready"),
    ],
)
def test_what_is_wrong_is_said_and_is_an_exit_status(
    run: Run, words: list[str], status: int, problem: str
) -> None:
    got, _, errors = run(*words)
    assert problem in errors
    assert errors.startswith(f"penstock {words[0]}: ")
    assert got == status


def test_a_file_that_holds_no_array_is_told(run: Run, tmp_path: Path) -> None:
    np.savez(tmp_path / "two.npz", a=np.zeros(1), b=np.zeros(1))
    two = (tmp_path / "two.npz").read_bytes()
    for content in (b"", b"x", b"\x93NUMPY\x01\x00", b"PK\x03\x04", two):
        (tmp_path / "n.npy").write_bytes(content)
        status, _, errors = run("infer", "copy", f"SMALL=@{tmp_path}/n.npy")
        assert status == 2
        assert "n.npy', the value of input 'SMALL'" in errors


@pytest.mark.parametrize(
    "words",
    [
        ["infer"],
        ["infer", "copy", "A"],
        ["models", "--url=ftp://x"],
        ["models", "--timeout=0"],
        ["models", "--header=x"],
        ["load", "copy", "--config={"],
        ["load", "copy", "--config=@/no/such/file"],
        ["infer", "copy", "--stream", "--hedge=1"],
        ["infer", "copy", "--sequence=a", "--retries=1"],
        ["infer", "copy", "--start"],
        ["embed", "length", "--retries=-1"],
        ["generate", "story", "--hedge=1"],
        ["completion", "fish"],
    ],
)
def test_a_wrong_command_line_ends_with_status_2(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    assert ended.value.code == 2


def test_generate_prints_text_as_it_comes(run: Run) -> None:
    status, text, errors = run("generate", "story", "w", "--max-tokens=3", "--times")
    assert (status, text) == (0, "w0 w1 w2 \n")
    assert errors.startswith("3 pieces in ")


def test_generate_reads_prompts(run: Run, stdin: Callable[[bytes], None]) -> None:
    stdin("één\n".encode())
    options = ["--max-tokens=1", "--temperature=0", "--option=x=[1]"]
    assert run("generate", "story", *options)[1] == "één0 \n"
    stdin(b"a\n\nb\n")
    text = run("generate", "story", "--lines", "--json", *options)[1]
    told = [json.loads(line) for line in text.splitlines()]
    assert [(each["prompt"], each["text"], each["pieces"]) for each in told] == [
        ("a", "a0 ", 1),
        ("b", "b0 ", 1),
    ]


def test_embed_prints_vectors(run: Run, stdin: Callable[[bytes], None]) -> None:
    assert "+3.000 +1.000" in run("embed", "length", "abc")[1]
    stdin(b"a\nbc\n")
    told = [json.loads(line) for line in run("embed", "length", "--json")[1].splitlines()]
    assert told == [{"text": "a", "vector": [1, 1]}, {"text": "bc", "vector": [2, 1]}]


def test_embed_tells_of_texts_that_fail_and_keeps_the_others(
    run: Run, stdin: Callable[[bytes], None]
) -> None:
    stdin(b"a\nbad\nbc\n")
    options = ["--id=r", "--priority=1", "--parameter=scale=2"]
    status, text, errors = run("embed", "length", "--json", *options)
    told = [json.loads(line) for line in text.splitlines()]
    assert [told[0], told[2]] == [
        {"text": "a", "vector": [2, 1]},
        {"text": "bc", "vector": [4, 1]},
    ]
    assert "a bad text: r-1, 1" in told[1]["error"]
    assert (status, "1 of 3 texts failed; the first: " in errors) == (1, True)
    status, text, _ = run("embed", "length", "bad", "abc")
    assert (status, "failed: " in text, "+3.000 +1.000" in text) == (1, True, True)


def test_embed_sends_nothing_more_to_a_server_that_is_gone(run: Run) -> None:
    status, text, errors = run("embed", "length", "a", "b", "--url=localhost:1")
    assert (status, text) == (3, "")
    assert "no server answers" in errors


@pytest.mark.parametrize("options", [["--retries=1"], ["--retries=1", "--hedge=20"]])
def test_what_the_server_refuses_for_now_is_tried_again(run: Run, options: list[str]) -> None:
    name = f"--id={'-'.join(options)}"
    assert run("embed", "length", "busy", f"{name}-never")[0] == 1
    assert run("embed", "length", "busy", name, *options)[0] == 0


def test_a_prompt_that_fails_leaves_the_others(run: Run, stdin: Callable[[bytes], None]) -> None:
    words = ["generate", "story", "--lines", "--max-tokens=1", "--option=fails=true"]
    stdin(b"a\nb\n")
    status, text, errors = run(*words, "--json")
    told = [json.loads(line) for line in text.splitlines()]
    assert [(each["text"], "no end" in each["error"]) for each in told] == [
        ("a0 ", True),
        ("b0 ", True),
    ]
    assert (status, "2 of 2 prompts failed" in errors) == (1, True)
    stdin(b"a\nb\n")
    status, text, errors = run(*words)
    assert (status, text) == (1, "a0 \nb0 \n")
    assert "penstock generate: 'b' failed: " in errors


def test_a_model_that_takes_no_prompts_is_asked_once(
    run: Run, stdin: Callable[[bytes], None]
) -> None:
    stdin(b"a\nb\n")
    status, _, errors = run("generate", "repeat", "--lines")
    assert (status, errors.count("takes no prompt")) == (2, 2), "for the prompt, and at the end"


def test_requests_have_what_the_protocol_knows(run: Run) -> None:
    options = ["--id=r", "--priority=2", "--parameter=tenant=a"]
    status, text, _ = run("generate", "story", "a", "--option=tell=true", *options)
    assert (status, json.loads(text)) == (0, ["r", 2, 0, False, {"tenant": "a"}])
    inputs = ["text_input=a", 'sampling_parameters={"tell": true}', "--stream", "--json"]
    _, text, _ = run("infer", "story", *inputs, "--sequence=7", "--start", *options)
    (told,) = json.loads(text)["outputs"]["text_output"]["data"]
    assert json.loads(told) == ["r", 2, 7, True, {"tenant": "a"}]


def test_models_are_listed(run: Run) -> None:
    assert run("models", "--names")[1].splitlines() == [
        "copy",
        "length",
        "repeat",
        "story",
        "waits",
    ]
    assert "READY" in run("models", "--ready")[1]
    told = json.loads(run("models", "--json")[1])
    assert told[0] == {"name": "copy", "version": "1", "state": "READY", "reason": ""}


def test_models_are_loaded_and_unloaded(run: Run, tmp_path: Path) -> None:
    assert run("unload", "repeat")[:2] == (0, "repeat is unloaded\n")
    assert run("load", "repeat")[:2] == (0, "repeat is loaded\n")
    assert json.loads(run("load", "repeat", "--json")[1]) == {"model": "repeat", "loaded": True}


def test_parts_of_an_ensemble_are_left_unless_the_command_names_them(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    async def unload(self: Client, model: str, *, dependents: bool) -> None:
        asked.append(dependents)

    monkeypatch.setattr(Client, "unload", unload)
    for more in ([], ["--dependents"]):
        assert run("unload", "repeat", *more)[0] == 0
    assert asked == [False, True]


def test_stats_count_requests(run: Run) -> None:
    run("infer", "copy", "SMALL=1")
    told: list[dict[str, Any]] = json.loads(run("stats", "copy", "--json")[1])
    assert told[0]["succeeded"] > 0
    assert "QUEUE ms" in run("stats")[1]


def test_wait_ends_when_all_are_ready(run: Run) -> None:
    assert run("wait", "copy", "story") == (0, "", "")
    assert json.loads(run("wait", "copy", "--json")[1]) == {"ready": True, "models": ["copy"]}


def test_http_addresses_work_too(run: Run, server: Served) -> None:
    status, text, _ = run("generate", "story", "a", "--max-tokens=2", f"--url=http://{server.http}")
    assert (status, text) == (0, "a0 a1 \n")


def test_a_decoupled_model_is_told_over_http_too(run: Run, server: Served) -> None:
    words = ["infer", "story", "text_input=hello", f"--url=http://{server.http}"]
    _, _, errors = run(*words)
    assert "'penstock generate story PROMPT' prints its text" in errors


@pytest.mark.slow
def test_ctrl_c_cancels_at_the_server(server: Served, tmp_path: Path) -> None:
    note = tmp_path / "note"
    words = ["generate", "story", "a", "--max-tokens=1", f"--option=note={note}"]
    process = _started(words)
    assert process.stdout is not None
    assert process.stdout.read(3) == b"a0 "
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130
    wait_until(note.exists)
    process.stdout.close()


@pytest.mark.slow
def test_a_reader_that_has_enough_ends_it_quietly(server: Served) -> None:
    process = _started(["generate", "story", "a", "--max-tokens=1000000"])
    assert process.stdout is not None
    assert process.stdout.read(3) == b"a0 "
    process.stdout.close()
    assert process.wait(20) == 141


@pytest.mark.slow
@pytest.mark.parametrize("words", [["stats"], ["generate", "story", "--max-tokens=1"]])
def test_streams_that_are_closed_lead_nowhere(server: Served, words: list[str]) -> None:
    closed = ["sh", "-c", 'exec "$0" "$@" <&- >&-', sys.executable, "-m", "penstock"]
    ran = subprocess.run([*closed, *words], stderr=subprocess.PIPE, timeout=20, check=False)
    assert (ran.returncode, ran.stderr) == (0, b"")


def _started(words: list[str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "penstock", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def test_every_command_has_a_line_of_help(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["--help"])
    text = capsys.readouterr().out
    commands = installed_commands().items()
    assert [name for name, one in commands if f"  {name:10} {one.summary}\n" not in text] == []
