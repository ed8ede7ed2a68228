"""Everything that was asked of a running Triton server about Python models, asked of this one.

What differs is listed below, with the reason; what differs and is not listed fails, and so does
what is listed and agrees.
"""

from __future__ import annotations

import json
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from conformance.golden import Case, Peer
from conformance.golden_row import row_differences
from recorded import answers, needs_answers, write_models
from serving import Served, serving

pytestmark = needs_answers

_HAS_PARAMETERS = "the recorded version had no parameters of responses; these are of a wrong type"

_KNOWN: Mapping[str, Mapping[str, str]] = {
    "grpc_infer_ok": {
        "model response parameters": _HAS_PARAMETERS,
    },
    "grpc_infer_errors": {},
    "grpc_streams": {
        "dec_failer mode 7": _HAS_PARAMETERS,
        "dec_failer mode 7 empty-final": _HAS_PARAMETERS,
    },
    "http_infer_ok": {
        "model response parameters": _HAS_PARAMETERS,
    },
    "http_generate": {
        "failer 31 parameters": _HAS_PARAMETERS,
        "dec_failer 7": _HAS_PARAMETERS,
        "dec_failer 7 stream": _HAS_PARAMETERS,
    },
}

_HAS_A_BEGINNING = "sequence end"
"""The last request of a sequence, of which only that was recorded; the one before held a 5."""

_FILES = (
    # Before anything is inferred, since they show how much was.
    "grpc_metadata",
    "model_configs",
    "http_routes",
    "grpc_infer_ok",
    "grpc_infer_errors",
    "grpc_streams",
    "http_infer_ok",
    "http_infer_errors",
    "http_generate",
)

_OWN_FRAMES = "the real one also shows a frame of its own module"
_IMPORT_FRAMES = "the real one also shows frames of the import machinery"
_STATUS_TOLD = "here the message tells how the process ended"

_KNOWN_AT_LOAD = {
    "load auto_badkey": _OWN_FRAMES,
    "load auto_conflict_dims": _OWN_FRAMES,
    "load auto_conflict_dtype": _OWN_FRAMES,
    "load auto_conflict_mbs": _OWN_FRAMES,
    "load py_exit": _STATUS_TOLD,
    "load py_import": _IMPORT_FRAMES,
}

_KNOWN_IN_INDEX = {
    "bad_backend": "here the reason lists the backends that are installed",
    "py_exit": _STATUS_TOLD,
    "py_import": _IMPORT_FRAMES,
    **dict.fromkeys(("auto_badkey", "auto_conflict_dims"), _OWN_FRAMES),
    **dict.fromkeys(("auto_conflict_dtype", "auto_conflict_mbs"), _OWN_FRAMES),
}


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    """A server over the models that were recorded."""
    directory = tmp_path_factory.mktemp("recorded")
    repository = write_models("good", directory / "models")
    with serving(repository, directory / "log", "--cache-config=local,size=1048576") as server:
        yield Peer(server.grpc, server.http, repository)


@pytest.mark.parametrize("file", _FILES)
def test_answers_are_those_of_the_real_server(peer: Peer, file: str) -> None:
    known = _KNOWN.get(file, {})
    asked = [Case(file, name, case) for name, case in answers(f"{file}.json").items()]
    for case in asked:
        if case.name == _HAS_A_BEGINNING:
            assert peer.difference(_beginning(case)) is None
    differing = {c.name: d for c in asked if (d := peer.difference(c)) is not None}
    print(f"{file}: {len(asked) - len(differing)} of {len(asked)} agree")
    unknown = {name: text for name, text in differing.items() if name not in known}
    assert not unknown, _listed(unknown)
    assert sorted(differing) == sorted(known), "some that are listed as different agree"


# -- models that cannot be loaded -----------------------------------------------------------------


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models of which most cannot be loaded."""
    repository = write_models("bad", tmp_path_factory.mktemp("bad") / "models")
    return write_models("hang", repository)


@pytest.fixture(scope="module")
def loader(bad: Path) -> Iterator[Served]:
    """A server that loads on request, and was asked for all that have no case of their own."""
    with serving(bad, bad.parent / "log", "--model-control-mode=explicit") as server:
        peer = Peer(server.grpc, server.http, bad)
        loads = {name.removeprefix("load ") for name in answers("load_errors.json")}
        for model in sorted({path.name for path in bad.iterdir()} - loads):
            request = {"rpc": "RepositoryModelLoad", "request": {"model_name": model}, "code": "OK"}
            peer.difference(Case("", model, request))
        yield server


def test_loads_fail_as_those_of_the_real_server(loader: Served, bad: Path) -> None:
    peer = Peer(loader.grpc, loader.http, bad)
    found = [
        Case("", name, _placed(case, bad)) for name, case in answers("load_errors.json").items()
    ]
    asked = [case for case in found if case.recorded["rpc"] != "RepositoryIndex"]
    asked = [case for case in asked if case.recorded["code"] != "DEADLINE_EXCEEDED"]
    differing = {c.name: d for c in asked if (d := peer.difference(c)) is not None}
    print(f"load_errors: {len(asked) - len(differing)} of {len(asked)} agree")
    unknown = {name: text for name, text in differing.items() if name not in _KNOWN_AT_LOAD}
    assert not unknown, _listed(unknown)
    assert sorted(differing) == sorted(_KNOWN_AT_LOAD), "some that are listed as different agree"


def test_index_tells_the_reasons_of_the_real_server(loader: Served, bad: Path) -> None:
    """Once all has been loaded, so this comes last."""
    recorded = _placed(answers("load_errors.json")["index after all"], bad)["response"]["models"]
    names = {path.name for path in bad.iterdir()} - {"no_model_file", "filename_missing"}
    expected = {model["name"]: model for model in recorded if model["name"] in names}
    asked = urllib.request.Request(f"http://{loader.http}/v2/repository/index", b"{}")
    with urllib.request.urlopen(asked, timeout=30) as reply:
        got = {model["name"]: model for model in json.load(reply)}
    differing = {n: f"{e}\n     {got[n]}" for n, e in expected.items() if e != got[n]}
    print(f"index: {len(expected) - len(differing)} of {len(expected)} models agree")
    unknown = {name: text for name, text in differing.items() if name not in _KNOWN_IN_INDEX}
    assert not unknown, _listed(unknown)
    assert sorted(differing) == sorted(_KNOWN_IN_INDEX), "some that are listed as different agree"


# -- models that come and go ----------------------------------------------------------------------

_TOO_QUICK = {"index after slow unloaded"}
"""Shows a model that is still being unloaded after it has answered; here it may be gone by then."""


def test_models_come_and_go_as_in_the_real_server(tmp_path: Path) -> None:
    """All of it in one row, since each question depends on those before it."""
    repository = write_models("good", tmp_path / "models")
    write_models("hang", write_models("bad", repository))
    found = [Case("", name, case) for name, case in answers("model_control.json").items()]
    asked = [case for case in found if case.name not in _TOO_QUICK]
    with serving(repository, tmp_path / "log", "--model-control-mode=explicit") as server:
        peer = Peer(server.grpc, server.http, repository)
        differing = dict(row_differences(peer, asked))
    print(f"model_control: {len(asked) - len(differing)} of {len(asked)} agree")
    assert not differing, _listed(differing)


@pytest.mark.contract("X-13", "X-14", "X-15", "H-11", "H-12")
def test_settings_are_kept_as_in_the_real_server(tmp_path: Path) -> None:
    """All of it in one row, as above."""
    repository = write_models("good", tmp_path / "models")
    for model in repository.iterdir():
        if model.name != "simple":
            shutil.rmtree(model)
    trace = tmp_path / "trace.json"
    text = json.dumps(answers("trace_and_logging.json")).replace("$WORK/gr/trace.json", str(trace))
    asked = [Case("", name, case) for name, case in json.loads(text).items()]
    with serving(repository, tmp_path / "log", f"--trace-config=triton,file={trace}") as server:
        differing = dict(row_differences(Peer(server.grpc, server.http, repository), asked))
    print(f"trace_and_logging: {len(asked) - len(differing)} of {len(asked)} agree")
    assert not differing, _listed(differing)


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


def _beginning(case: Case) -> Case:
    """The request before the one that ends a sequence, and its answer."""
    text = json.dumps(case.recorded).replace("sequence_end", "sequence_start")
    recorded = json.loads(text.replace("[6]", "[5]").replace("[11]", "[5]"))
    return Case(case.file, "sequence start", recorded)


def _placed(recorded: Any, repository: Path) -> Any:
    return json.loads(json.dumps(recorded).replace("$BAD_REPO", str(repository)))


def _listed(differing: Mapping[str, str]) -> str:
    return "\n".join(f"{name}:\n     {text}" for name, text in differing.items())
