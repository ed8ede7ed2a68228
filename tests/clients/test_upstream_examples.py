"""Triton's own client examples, unchanged, against the models of `penstock demo --examples`.

    git clone https://github.com/triton-inference-server/client
    PENSTOCK_TRITON_EXAMPLES=client pytest -rs tests/clients

They are not part of this project; without that folder these tests are left out. What runs them
is tried on programs of the tests' own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from clients import upstream
from clients.upstream_runs import RUNS, Run

_FOLDER = upstream.examples(Path(os.environ.get("PENSTOCK_TRITON_EXAMPLES", "nowhere")))

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[upstream.Servers]:
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    with ExitStack() as stack:
        yield upstream.Servers(tmp_path_factory.mktemp("servers"), stack)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return upstream.pictures(tmp_path_factory.mktemp("images"))


@pytest.mark.needs(
    "Triton's client examples",
    "" if _FOLDER.is_dir() else "PENSTOCK_TRITON_EXAMPLES does not name Triton's examples",
)
@pytest.mark.contract("CC-10", "CC-11", "CC-12")
@pytest.mark.parametrize("run", RUNS, ids=str)
def test_upstream_example(run: Run, servers: upstream.Servers, images: Path) -> None:
    if not (_FOLDER / run.file).is_file():
        pytest.skip(f"there is no {run.file} in {_FOLDER}")
    result = upstream.perform(run, _FOLDER, servers, images)
    if result.verdict not in (upstream.PASSED, upstream.FAILED):
        pytest.skip(f"{run.file}: {result.verdict}")
    assert result.verdict == upstream.PASSED, result.printed


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("import sys; print('PASS', *sys.argv[1:])", upstream.PASSED),
        ("print('PASS'); raise SystemExit(1)", upstream.FAILED),
        ("print('nothing to say')", upstream.FAILED),
        ("import not_there.part", "not_there is not installed"),
        ('model_name = "inception_graphdef"', "inception_graphdef is no longer"),
    ],
)
def test_verdicts(
    servers: upstream.Servers, images: Path, tmp_path: Path, text: str, verdict: str
) -> None:
    (tmp_path / "example.py").write_text(text)
    result = upstream.perform(Run("example.py"), tmp_path, servers, images)
    assert result.verdict.startswith(verdict)


@pytest.mark.parametrize("count", [7, 8])
def test_an_example_finds_as_many_models_as_it_counts(
    servers: upstream.Servers, images: Path, tmp_path: Path, count: int
) -> None:
    (tmp_path / "example.py").write_text(
        "import sys\n"
        "import tritonclient.grpc as grpcclient\n"
        "client = grpcclient.InferenceServerClient(sys.argv[-1])\n"
        f"if len(client.get_model_repository_index().models) != {count}:\n"
        "    sys.exit(1)\n"
        "print('PASS')\n"
    )
    result = upstream.perform(Run("example.py"), tmp_path, servers, images)
    assert result.verdict == upstream.PASSED, result.printed


def test_examples_without_arguments_of_their_own_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "simple_grpc_cudashm_client.py").write_text("import not_there")
    (tmp_path / "new_example.py").write_text("")
    assert upstream.main([str(tmp_path)]) == 1
    assert "new_example.py: nobody has said" in capsys.readouterr().out
