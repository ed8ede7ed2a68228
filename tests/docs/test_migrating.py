"""The page for those who come from Triton: what it names is there, and nothing is left out."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import penstock.in_process as tritonserver
from deploy.image import contents
from penstock import cli
from penstock.core.config import ModelConfig
from penstock.core.errors import ModelLoadError
from penstock.models.loading.backends import backend_of
from penstock.system.model_variables import passed_on
from penstock_backends.python.pb_utils.metrics import MetricFamily

_ROOT = Path(__file__).parents[2]
_DOCS = _ROOT / "docs"
_IMAGES = (_DOCS / "images.md").read_text("utf-8")
_BUILT = _IMAGES.partition("\n## ")[0]
_ENGINES = re.findall(r"^\| (?!none)[^|]+ \| `([\w,-]+)` \|", _BUILT, re.MULTILINE)
_IN_PROCESS = (_DOCS / "in-process.md").read_text("utf-8")


def _tables(page: str) -> list[dict[str, str]]:
    """Of each table: its second column by its first."""
    text = (_DOCS / page).read_text("utf-8")
    tables = re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE)
    rows = [re.findall(r"^\| ?([^|]*?) ?\| ?([^|]*?) ?\|", table, re.MULTILINE) for table in tables]
    return [dict(table) for table in rows]


def _table(page: str, head: str) -> dict[str, str]:
    (found,) = [table for table in _tables(page) if head in table]
    return found


_VERBS = _table("migrating.md", "of Triton's CLI")
_AROUND = _table("migrating.md", "NIM")
_MISSING = next(table for table in _tables("migrating.md") if table.get("of Triton") == "instead")
_PLACES = next(table for table in _tables("migrating.md") if table.get("of Triton") == "here")


def _text_of(table: dict[str, str], begins: str) -> str:
    (found,) = [f"{what} | {here}" for what, here in table.items() if what.startswith(begins)]
    return found


# -- what stands for what --------------------------------------------------------------------------


@pytest.mark.contract("K-01")
@pytest.mark.parametrize(
    "tag",
    [
        *("-py3", "-py3-min", "-py3-sdk", "-trtllm-python-py3", "-pyt-python-py3", "-igpu"),
        pytest.param("-vllm-python-py3", marks=pytest.mark.contract("VL-25")),
    ],
)
def test_each_image_of_triton_has_a_place_in_the_table_of_ours(tag: str) -> None:
    rows = re.findall(r"^\| .* \| ([^|]*) \|$", _BUILT, re.MULTILINE)
    assert any(f"`{tag}`" in row for row in rows)


@pytest.mark.contract("K-01", "K-06")
@pytest.mark.parametrize("engine", _ENGINES)
def test_each_image_of_the_table_is_built_of_extras_that_there_are(engine: str) -> None:
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]
    assert contents.requirements(project, engine)


@pytest.mark.contract("K-02")
def test_the_image_s_command_is_the_line_that_stays() -> None:
    text = _text_of(_PLACES, "`docker run")
    last = (_ROOT / "Dockerfile").read_text().rpartition("\nFROM ")[2]
    assert "tritonserver --model-repository=/models` | the same line" in text
    assert 'CMD ["tritonserver", "--model-repository=/models"]' in last
    assert "EXPOSE 8000 8001 8002" in last
    assert "ENTRYPOINT" not in last


@pytest.mark.contract("K-05")
def test_each_image_that_was_measured_is_smaller_than_triton_s() -> None:
    assert "9.9 GB" in _IMAGES
    (sizes,) = re.findall(r"^\| MB, unpacked \| (.*) \|$", _IMAGES, re.MULTILINE)
    megabytes = [int(size.replace(",", "")) for size in sizes.split(" | ")]
    assert len(megabytes) == 3
    assert max(megabytes) < 9900 / 2


@pytest.mark.contract("K-06")
def test_parts_of_an_image_are_chosen_by_extras() -> None:
    assert "`docker build --build-arg ENGINE=onnx`" in _text_of(_PLACES, "`compose.py --backend")


@pytest.mark.contract("K-22")
@pytest.mark.parametrize(
    "verb",
    ["import", "remove", "list", "start", "infer", "profile", "metrics", "config", "status"],
)
def test_each_verb_of_triton_s_program_has_a_command(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["--help"]) == 0
    known = re.findall(r"^  ([a-z]+) ", capsys.readouterr().out, re.MULTILINE)
    named = re.findall(r"`penstock ([a-z]+)", _text_of(_VERBS, f"`triton {verb}"))
    assert named
    assert {*named} <= {*known}


@pytest.mark.contract("K-22")
def test_sources_of_models_are_those_of_triton_s_program() -> None:
    text = _text_of(_VERBS, "`triton import")
    assert re.findall(r"-s (\w+):", text) == ["hf", "local"]
    assert re.findall(r"`penstock import (\S+)", text) == ["hf://OWNER/NAME", "PATH"]


@pytest.mark.contract("M-20")
def test_model_processes_get_the_allocator_of_the_server() -> None:
    assert "LD_PRELOAD" in _text_of(_PLACES, "tcmalloc or jemalloc")
    given = {"LD_PRELOAD": "libtcmalloc.so.4", "MALLOC_ARENA_MAX": "2", "OTHER": "no"}
    assert passed_on(given) == {"LD_PRELOAD": "libtcmalloc.so.4", "MALLOC_ARENA_MAX": "2"}


@pytest.mark.contract("K-13")
def test_charts_for_clouds_are_values_of_one() -> None:
    text = _text_of(_PLACES, "charts for clouds")
    assert all(scheme in text for scheme in ("`s3://`", "`gs://`", "`as://`", "envFrom"))


# -- around Triton ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "said"),
    [
        pytest.param("NIM", "deploy/llm", marks=pytest.mark.contract("SD-01")),
        pytest.param("NeMo", "penstock import", marks=pytest.mark.contract("SD-02")),
        pytest.param("NeMo Guardrails", "by BLS", marks=pytest.mark.contract("SD-03")),
        pytest.param("NGC", "TensorRT-LLM", marks=pytest.mark.contract("SD-04")),
        pytest.param("NVIDIA Container Toolkit", "`--gpus`", marks=pytest.mark.contract("K-04")),
        pytest.param("CUDA, NCCL", "tensor_parallel_size", marks=pytest.mark.contract("SD-05")),
        pytest.param(
            "SGLang, RadixAttention", "enable_prefix_caching", marks=pytest.mark.contract("SD-07")
        ),
        pytest.param("prices of GPUs", "penstock perf", marks=pytest.mark.contract("SD-11")),
    ],
)
def test_what_stands_around_triton_has_its_place(name: str, said: str) -> None:
    assert said in _AROUND[name]


@pytest.mark.contract("SD-08")
@pytest.mark.parametrize(
    ("server", "here"),
    [
        ("TorchServe", "penstock serve model.pt"),
        ("TensorFlow Serving", "model.savedmodel"),
        ("BentoML", "dynamic_batching"),
        ("TGI", "penstock serve hf://OWNER/NAME"),
        ("KServe", "ServingRuntime"),
    ],
)
def test_users_of_other_servers_find_their_way(server: str, here: str) -> None:
    assert here in _table("migrating.md", "from")[server]


# -- what there is not -----------------------------------------------------------------------------


@pytest.mark.contract("R-25")
@pytest.mark.parametrize("place", ["m/1", "m", "backends/mine"])
def test_a_library_is_loaded_from_none_of_its_places(place: str, tmp_path: Path) -> None:
    """Neither of the version, nor of the model, nor of the backend directory."""
    assert "is looked for nowhere" in _text_of(_MISSING, "backends in C++")
    (tmp_path / place).mkdir(parents=True)
    (tmp_path / place / "libtriton_mine.so").write_bytes(b"\x7fELF")
    settings = {"backend-directory": str(tmp_path / "backends")}
    with pytest.raises(ModelLoadError, match=r"backends in C\+\+ are not loaded: write its work"):
        backend_of(ModelConfig("m", backend="mine"), settings)
    with pytest.raises(ModelLoadError, match="Penstock loads no shared libraries"):
        backend_of(ModelConfig("m", backend="mine", runtime="libtriton_other.so"), settings)


@pytest.mark.contract("API-11")
@pytest.mark.parametrize(
    ("function", "method"),
    [
        ("ServerNew", tritonserver.Server),
        ("ServerOptionsSet", tritonserver.Options),
        ("IsLive", tritonserver.Server.live),
        ("IsReady", tritonserver.Server.ready),
        ("InferAsync", tritonserver.Model.async_infer),
        ("ModelMetadata", tritonserver.Model.metadata),
        ("ModelConfig", tritonserver.Model.config),
        ("ModelStatistics", tritonserver.Model.statistics),
        ("ModelIndex", tritonserver.Server.models),
        ("LoadModel", tritonserver.Server.load),
        ("UnloadModel", tritonserver.Server.unload),
    ],
)
def test_functions_of_the_c_api_have_an_equivalent_in_python(function: str, method: object) -> None:
    assert callable(method), function
    assert "in-process.md" in _text_of(_MISSING, "the C API")
    assert "| the C API | there is none: this is its equivalent |" in _IN_PROCESS


@pytest.mark.contract("ME-30")
def test_metrics_of_the_c_api_have_an_equivalent_in_python() -> None:
    assert "pb_utils.MetricFamily" in _text_of(_MISSING, "metrics through the C API")
    kinds = ("COUNTER", "GAUGE", "HISTOGRAM")
    assert all(hasattr(MetricFamily, kind) for kind in kinds)


@pytest.mark.parametrize(
    ("part", "instead"),
    [
        pytest.param("the Java bindings", "clients.md", marks=pytest.mark.contract("API-17")),
        pytest.param(
            "`triton_python_backend_stub`",
            "EXECUTION_ENV_PATH",
            marks=pytest.mark.contract("PY-36"),
        ),
        pytest.param("scripts for AWS Inferentia", "none", marks=pytest.mark.contract("PY-45")),
        pytest.param(
            "Jetson, Windows", "Linux on x86_64 and aarch64", marks=pytest.mark.contract("K-20")
        ),
    ],
)
def test_what_cannot_be_here_is_said_with_what_may_be_done(part: str, instead: str) -> None:
    assert instead in _text_of(_MISSING, part)
