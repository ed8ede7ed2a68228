"""Memory of the host that models take once they are loaded, beside what `penstock plan` says.

    python -m loadtest.scenarios.sizes           the demo's models
    python -m loadtest.scenarios.sizes --large   and random ones of 200 to 500 MB
    python -m loadtest.scenarios.sizes --formats random ones alone, in FP16 and as OpenVINO has them
    python -m loadtest.scenarios.sizes --pytorch PYTHON  TorchScript, which that Python runs; of
                                                         500 MB, too, with --large
    python -m loadtest.scenarios.sizes --vllm PYTHON     language models, which that Python runs

Each model gets a server of its own. Measured is the proportional set size (PSS) of the server and
its model processes, with the model and without it; of a language model once its cache is full, but
for `--vllm` after a prompt of a thousand tokens; of the random encoder, and the networks of
`--formats` and `--pytorch`, whose shapes no factor was fitted to, after a request.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

from loadtest.llm_repository import write_llm
from loadtest.process import Server, family, penstock
from loadtest.random_llms import MODELS, RandomLlm
from loadtest.report import Row, arguments, median_rows, show
from penstock import cli
from penstock.demo import write_demo
from penstock.demo.onnx_graph import OnnxGraphBuilder

_MIB = 1 << 20
_LAYERS, _WIDTH = 12, 2048
_LLMS = {
    "random_llm": RandomLlm(
        "sizes", hidden=1536, layers=10, heads=12, kv_heads=4, intermediate=4096
    ),
    "random_llm_300": RandomLlm(
        "20ms", hidden=1024, layers=12, heads=16, kv_heads=8, intermediate=2816
    ),
    "random_llm_deep": RandomLlm(
        "deep", hidden=896, layers=12, heads=14, kv_heads=2, intermediate=4864
    ),
}
_CACHE_TOKENS = 16384
_NETWORKS = ((10, 1536), (3, 4096), (40, 1024))
"""Matrices, and the width of each."""
_LARGE_SCRIPT = (31, 2048)
_ENCODER_WORDS, _ENCODER_LAYERS, _ENCODER_WIDTH, _ENCODER_HEADS = 30522, 6, 1024, 16

_SCRIPT = """
import sys, torch
layers, width, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
parts = [torch.nn.Linear(width, width, bias=False) for _ in range(layers)]
network = torch.nn.Sequential(*(each for part in parts for each in (part, torch.nn.ReLU())))
torch.jit.save(torch.jit.script(network), path)
"""
"""Writes TorchScript."""
_SCRIPT_CONFIG = """
backend: "pytorch" max_batch_size: 8
input [ {{ name: "x" data_type: TYPE_FP32 dims: [ {0} ] }} ]
output [ {{ name: "y__0" data_type: TYPE_FP32 dims: [ {0} ] }} ]
"""


def main() -> None:
    parser = arguments(__doc__, timed=False)
    parser.add_argument("--large", action="store_true", help="also models of 200 to 500 MB")
    parser.add_argument(
        "--models", nargs="+", metavar="MODEL", help="those to measure (default: all)"
    )
    parser.add_argument("--formats", action="store_true", help="only networks of other formats")
    parser.add_argument("--pytorch", metavar="PYTHON", help="only TorchScript, run by this Python")
    parser.add_argument("--vllm", metavar="PYTHON", help="only models of vLLM, run by this Python")
    options = parser.parse_args()
    engines = {"pytorch": options.pytorch, "vllm": options.vllm}
    flags = [f"--backend-config={name},python={path}" for name, path in engines.items() if path]
    with tempfile.TemporaryDirectory() as directory:
        repository = Path(directory)
        if options.formats:
            _write_formats(repository)
        elif options.pytorch:
            _write_scripts(repository, options.pytorch, large=options.large)
        elif options.vllm:
            for llm in {one.name: one for one in (*MODELS, *_LLMS.values())}.values():
                write_llm(repository, llm, "vllm", settings={"dtype": "auto"})
        else:
            write_demo(repository, report=lambda _: None)
        if options.large and not (options.pytorch or options.vllm):
            _write_encoder(repository / "random_encoder")
            _write_network(repository / "random_network")
            for name in _LLMS:
                _write_llm(repository / name)
        names = options.models or sorted(path.name for path in repository.iterdir())
        rows = median_rows(
            options.rounds, lambda: [_row(repository, name, flags) for name in names]
        )
    show("memory of models, in MiB", rows, options.json)


def _row(repository: Path, name: str, flags: Sequence[str]) -> Row:
    plan = _plan(repository, name)
    (model,) = plan["models"]
    parts = model["devices"]["host"]
    bare = _plan(None, name)["server"]["host"]["sum"]
    library = plan["server"]["host"]["sum"] - bare
    planned = parts["sum"] + library
    measured = _measured(repository, name, flags)
    return {
        "model": name,
        "weights": sum(parts["weights"].values()) / _MIB,
        "KV cache": parts["kv_cache"] / _MIB,
        "activations": parts["activations"] / _MIB,
        "runtime": (parts["runtime"] + library) / _MIB,
        "planned": planned / _MIB,
        "measured": measured / _MIB,
        "planned/measured": planned / measured,
    }


def _plan(repository: Path | None, name: str) -> Any:
    words = ["--also=nothing=1"] if repository is None else [str(repository), name]
    with redirect_stdout(StringIO()) as printed:
        cli.main(["plan", *words, "--format=json"])
    return json.loads(printed.getvalue())


def _measured(repository: Path, name: str, flags: Sequence[str]) -> int:
    with penstock(repository, "--model-control-mode=explicit", *flags) as server:
        before = _memory(server)
        _post(server, f"repository/models/{name}/load", {})
        prompts = list(_prompts(repository / name))
        _fill(server, name, prompts[:1] if name.startswith("llm-") else prompts)
        if name.startswith("network_"):
            width = int(name.rpartition("_")[2])
            tensor = {"name": "x", "shape": [1, width], "datatype": "FP32", "data": [1.0] * width}
            _post(server, f"models/{name}/infer", {"inputs": [tensor]})
        elif name == "random_encoder":
            words = list(range(1000, 1128))
            tensor = {"name": "ids", "shape": [1, 128], "datatype": "INT64", "data": words}
            _post(server, f"models/{name}/infer", {"inputs": [tensor]})
        return _memory(server) - before


def _memory(server: Server) -> int:
    """The proportional set size of the server and all processes below it."""
    found = 0
    for pid in family(server.pid):
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        (line,) = (line for line in text.splitlines() if line.startswith("Pss:"))
        found += int(line.split()[1]) * 1024
    return found


def _prompts(model: Path) -> Iterator[str]:
    """Different prompts of 1,000 tokens, as many as the cache of a language model holds."""
    if not (model / "1" / "model.json").exists():
        return
    random = np.random.default_rng(1)
    words = ["file", "the", "of", "and", "in", "is", "to", "a"]
    for _ in range(_CACHE_TOKENS // 1000 + 1):
        yield " ".join(words[at] for at in random.integers(0, len(words), 990))


def _fill(server: Server, name: str, prompts: Sequence[str]) -> None:
    with ThreadPoolExecutor(8) as pool:
        asked = (
            pool.submit(
                _post, server, f"models/{name}/generate", {"text_input": text, "max_tokens": 1}
            )
            for text in prompts
        )
        for answer in list(asked):
            answer.result()


def _post(server: Server, path: str, body: dict[str, Any]) -> None:
    url = f"http://127.0.0.1:{server.http_port}/v2/{path}"
    request = urllib.request.Request(url, json.dumps(body).encode(), method="POST")
    urllib.request.urlopen(request, timeout=900).close()


def _write_network(folder: Path) -> None:
    """Products with random matrices: 12 of 16 MiB."""
    _write_products(folder / "1" / "model.onnx", _LAYERS, _WIDTH)
    (folder / "config.pbtxt").write_text('backend: "onnxruntime" max_batch_size: 8')


def _write_products(path: Path, layers: int, width: int, *, half: bool = False) -> None:
    """A graph of products with random matrices, which are in FP16 if `half`."""
    path.parent.mkdir(parents=True)
    random = np.random.default_rng(1)
    graph = OnnxGraphBuilder("random")
    state = graph.input("x", "float32", ("batch", width))
    if half:
        state = graph.op("Cast", state, to=10)
    for _ in range(layers):
        matrix = random.standard_normal((width, width), np.float32) * 0.02
        weight = graph.weight(matrix.astype(np.float16) if half else matrix)
        state = graph.op("Relu", graph.op("MatMul", state, weight))
    if half:
        state = graph.op("Cast", state, to=1)
    graph.output("y", state, "float32", ("batch", width))
    graph.save(path)


def _write_encoder(folder: Path) -> None:
    """An encoder of texts in the shape of BERT, of 407 MiB: embeddings, attention, GELU."""
    width, random = _ENCODER_WIDTH, np.random.default_rng(2)
    graph = OnnxGraphBuilder("encoder")

    def matrix(rows: int, columns: int) -> str:
        return graph.weight(random.standard_normal((rows, columns), np.float32) * 0.02)

    def integers(*values: int) -> str:
        return graph.weight(np.array(values, np.int64))

    def normalized(value: str) -> str:
        scale, offset = np.ones(width, np.float32), np.zeros(width, np.float32)
        return graph.op("LayerNormalization", value, graph.weight(scale), graph.weight(offset))

    heads = integers(0, 0, _ENCODER_HEADS, width // _ENCODER_HEADS)
    states = graph.op(
        "Gather", matrix(_ENCODER_WORDS, width), graph.input("ids", "int64", ("n", "t"))
    )
    for _ in range(_ENCODER_LAYERS):
        query, key, value = (
            graph.op("Reshape", graph.op("MatMul", states, matrix(width, width)), heads)
            for _ in range(3)
        )
        scores = graph.op(
            "MatMul",
            graph.op("Transpose", query, perm=[0, 2, 1, 3]),
            graph.op("Transpose", key, perm=[0, 2, 3, 1]),
        )
        shares = graph.op(
            "Softmax", graph.op("Mul", scores, graph.weight(np.array([0.125], np.float32)))
        )
        mixed = graph.op("MatMul", shares, graph.op("Transpose", value, perm=[0, 2, 1, 3]))
        joined = graph.op(
            "Reshape", graph.op("Transpose", mixed, perm=[0, 2, 1, 3]), integers(0, 0, width)
        )
        states = normalized(
            graph.op("Add", states, graph.op("MatMul", joined, matrix(width, width)))
        )
        inner = graph.op("Gelu", graph.op("MatMul", states, matrix(width, 4 * width)))
        states = normalized(
            graph.op("Add", states, graph.op("MatMul", inner, matrix(4 * width, width)))
        )
    graph.output("states", states, "float32", ("n", "t", width))
    (folder / "1").mkdir(parents=True)
    graph.save(folder / "1" / "model.onnx")
    (folder / "config.pbtxt").write_text('backend: "onnxruntime" max_batch_size: 8')


def _write_formats(repository: Path) -> None:
    """The same in FP16, and as OpenVINO has it."""
    import openvino

    for layers, width in _NETWORKS:
        for half in (True, False):
            kind = "fp16" if half else "fp32"
            folder = repository / f"network_onnx_{kind}_{width}"
            onnx = folder / "1" / "model.onnx"
            _write_products(onnx, layers, width, half=half)
            (folder / "config.pbtxt").write_text('backend: "onnxruntime" max_batch_size: 8')
            ir = repository / f"network_openvino_{kind}_{width}"
            graph = onnx
            if half:  # which it compresses itself
                graph = repository / "full" / "model.onnx"
                _write_products(graph, layers, width)
            openvino.save_model(
                openvino.convert_model(graph), ir / "1" / "model.xml", compress_to_fp16=half
            )
            shutil.rmtree(repository / "full", ignore_errors=True)
            (ir / "config.pbtxt").write_text('backend: "openvino" max_batch_size: 8')


def _write_scripts(repository: Path, python: str, *, large: bool) -> None:
    for layers, width in (*_NETWORKS, *([_LARGE_SCRIPT] if large else [])):
        folder = repository / f"network_torch_{width}"
        (folder / "1").mkdir(parents=True)
        file = str(folder / "1" / "model.pt")
        subprocess.run([python, "-c", _SCRIPT, str(layers), str(width), file], check=True)
        (folder / "config.pbtxt").write_text(_SCRIPT_CONFIG.format(width))


def _write_llm(folder: Path) -> None:
    """A random Llama in FP16, on OpenVINO GenAI."""
    version = folder / "1"
    version.mkdir(parents=True)
    for file in _LLMS[folder.name].gguf().iterdir():
        (version / file.name).symlink_to(file)
    settings = {
        "num_kv_blocks": _CACHE_TOKENS // 32,
        "max_model_len": 1024,
        "properties": {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"},
    }
    (version / "model.json").write_text(json.dumps(settings))
    config = (Path(cli.__file__).parents[1] / "demo" / "assets" / "templates").joinpath(
        "tiny_llm-openvino_genai", "config.pbtxt"
    )
    (folder / "config.pbtxt").write_text(config.read_text().replace("tiny_llm", folder.name))


if __name__ == "__main__":
    main()
