"""Everything that was asked of a running Triton server about Python models, asked of this one.

What differs is listed in `differences.py`, with the reason; what differs and is not listed fails,
and so does what is listed and agrees.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from conformance.agreement import (
    ANSWERS,
    CONTROL,
    FAILED,
    KNOWN,
    LOADS,
    TRACE,
    Agreement,
    agreement,
)
from conformance.golden import FOREIGN_FRAMES, Peer
from harness.recorded import answers, needs_answers, write_models
from harness.serving import Served, serving

pytestmark = needs_answers

_KNOWN_IN_INDEX = {
    "bad_backend": "here the reason lists the backends that are installed",
    "gpu_instance": "here the reason says what to write where there are no GPUs",
    "py_exit": "here the message tells how the process ended",
}


@pytest.fixture(scope="module")
def agreements() -> Mapping[str, Agreement]:
    """What a server over the recorded models answers, asked in the order of the recording: its
    statistics tell what came before."""
    with ANSWERS.peer() as peer:
        return {file: agreement(file, peer) for file in ANSWERS.files}


@pytest.mark.contract("X-12", "X-23", "V-06", "H-09", "HI-16", "H-27")
@pytest.mark.parametrize("file", ANSWERS.files)
def test_answers_are_those_of_the_real_server(
    agreements: Mapping[str, Agreement], file: str
) -> None:
    assert _surprises(file, agreements[file]) == {}


@pytest.fixture(scope="module")
def failed() -> Iterator[Peer]:
    """A server that could load few of its models at the start."""
    with FAILED.peer() as peer:
        yield peer


@pytest.mark.parametrize("file", FAILED.files)
def test_answers_about_models_that_failed_are_those_of_the_real_server(
    failed: Peer, file: str
) -> None:
    assert _surprises(file, agreement(file, failed)) == {}


@pytest.mark.contract("X-13", "X-14", "X-15", "H-11", "H-12")
def test_settings_are_kept_as_in_the_real_server() -> None:
    """All of it in one row, since each question depends on those before it."""
    with TRACE.peer() as peer:
        assert _surprises("trace_and_logging", agreement("trace_and_logging", peer)) == {}


@pytest.mark.contract("G-12", "G-13", "X-16", "X-17", "X-18", "X-19", "M-02")
def test_models_come_and_go_as_in_the_real_server() -> None:
    """All of it in one row, as above."""
    with CONTROL.peer() as peer:
        assert _surprises("model_control", agreement("model_control", peer)) == {}


def _surprises(file: str, found: Agreement) -> dict[str, str]:
    """Cases that differ although that is not known, and those that agree although it is."""
    known = KNOWN.get(file, {})
    count, differing = found
    print(f"{file}: {count - len(differing)} of {count} agree")
    unknown = {name: text for name, text in differing.items() if name not in known}
    agreeing = dict.fromkeys(known.keys() - differing.keys(), "is listed as different, and agrees")
    return unknown | agreeing


# -- models that cannot be loaded -----------------------------------------------------------------


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models of which most cannot be loaded."""
    repository = write_models("bad", tmp_path_factory.mktemp("bad") / "models")
    return write_models("hang", repository)


@pytest.fixture(scope="module")
def loader(bad: Path) -> Iterator[Served]:
    """A server that loads on request."""
    with serving(bad, bad.parent / "log", *LOADS.arguments) as server:
        yield server


@pytest.fixture(scope="module")
def loads(loader: Served, bad: Path) -> dict[str, dict[str, str]]:
    """Differences after all loads, by the file of their answers."""
    peer = Peer(loader.grpc, loader.http, bad)
    return {file: _surprises(file, agreement(file, peer)) for file in LOADS.files}


@pytest.mark.contract("X-19", "M-14")
@pytest.mark.parametrize("file", LOADS.files)
def test_loads_fail_as_those_of_the_real_server(
    loads: dict[str, dict[str, str]], file: str
) -> None:
    assert loads[file] == {}


@pytest.mark.usefixtures("loads")
def test_index_tells_the_reasons_of_the_real_server(loader: Served, bad: Path) -> None:
    """Once all has been loaded; models without a version have one here, too."""
    recorded = _placed(answers("load_errors.json")["index after all"], bad)["response"]["models"]
    names = {path.name for path in bad.iterdir()} - {"no_model_file", "filename_missing"}
    expected = {model["name"]: model for model in recorded if model["name"] in names}
    asked = urllib.request.Request(f"http://{loader.http}/v2/repository/index", b"{}")
    with urllib.request.urlopen(asked, timeout=30) as reply:
        got = {model["name"]: model for model in json.load(reply)}
    unread = [name for name, model in expected.items() if model.keys() == {"name"}]
    assert all(got[name].get("reason", "?") for name in unread)
    got |= {name: {"name": name} for name in unread}
    differing = {n: f"{e}\n     {got[n]}" for n, e in expected.items() if e != got[n]}
    print(f"index: {len(expected) - len(differing)} of {len(expected)} models agree")
    unknown = {name: text for name, text in differing.items() if name not in _KNOWN_IN_INDEX}
    assert not unknown, _listed(unknown)
    assert sorted(differing) == sorted(_KNOWN_IN_INDEX), "some that are listed as different agree"


@pytest.mark.parametrize(
    ("model", "file"), [("no_model_file", "model.py"), ("filename_missing", "nope.py")]
)
def test_missing_file_is_told_where_the_real_server_hangs(
    loader: Served, bad: Path, model: str, file: str
) -> None:
    url = f"http://{loader.http}/v2/repository/models/{model}/load"
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(urllib.request.Request(url, b"{}"), timeout=30)
    path = bad / model / "1" / file
    assert f"model file '{path}' does not exist" in json.load(refused.value)["error"]


def _placed(recorded: Any, repository: Path) -> Any:
    text = FOREIGN_FRAMES.sub("", json.dumps(recorded))
    return json.loads(text.replace("$BAD_REPO", str(repository)))


def _listed(differing: Mapping[str, str]) -> str:
    return "\n".join(f"{name}:\n     {text}" for name, text in differing.items())
