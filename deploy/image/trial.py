"""What each image is tried with, by Triton's own client and from outside of the container."""

from __future__ import annotations

import json
import queue
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from deploy.image.images import ImageError, Running, Tool, Variant, running, tag
from deploy.observability.programs import answers
from penstock.demo import write_demo, write_examples

READY_SECONDS = 240.0
_END_SECONDS = 60.0
_SERVER = ("tritonserver", "--model-repository=/models")  # S033
_BUILT_IN = ("simple_identity", "square_int32", "repeat_int32")
"""Models whose backends need no engine: identity, Python, repeat."""
_MODELS: Mapping[str, Sequence[str]] = {
    "base": _BUILT_IN,
    "cpu": (*_BUILT_IN, "densenet_onnx", "simple", "identity", "minilm", "reranker", "tiny_llm"),
    "vllm-cpu": (*_BUILT_IN, "tiny_vllm"),
}

_Array = np.ndarray[Any, Any]


def tried(tool: Tool, variant: Variant, out: Path) -> tuple[dict[str, str], list[str]]:
    """Try an image: what each trial saw, and what failed. Logs of the containers go to `out`."""
    image = tag(variant)
    tool = replace(tool, run=(*tool.run, *variant.run))
    models = repository(variant, out)
    seen: dict[str, str] = {}
    failures: list[str] = []

    def note(name: str, trial: Callable[[], str]) -> None:
        try:
            seen[name] = trial()
        except (ImageError, InferenceServerException, OSError, subprocess.SubprocessError) as error:
            seen[name] = "FAILED"
            failures.append(f"{name}: {error}")
        print(f"    {name}: {seen[name]}", flush=True)

    try:
        with _serving(tool, image, models, out / f"{variant.name}.log", *_SERVER) as (
            server,
            ready,
        ):
            seen["ready after"] = f"{ready:.1f} s"
            note("user, root file system", partial(_confined, server))
            note("its own health check", partial(_healthy, server))
            note("HTTP, tritonclient", partial(_over_http, server))
            note("gRPC, tritonclient", partial(_over_grpc, server))
            note("gRPC streams", partial(_streams, server))
            if variant.name != "base":
                note("OpenAI's API", partial(_openai, server))
            note("SIGTERM in a stream", partial(_drain, server))
    except ImageError as error:
        failures.append(f"it did not start: {error}")
    log = out / f"{variant.name}.lines.log"
    one = _MODELS[variant.name][3 if variant.name == "cpu" else 0]
    note("explicit, --load-model", partial(_explicit, tool, image, models, log, one))
    note("--log-verbose=1", partial(_verbose, tool, image, models, log))
    note("an engine that it lacks", partial(_lacking, tool, variant, out))
    return seen, failures


def repository(variant: Variant, out: Path) -> Path:
    """The models that the image serves, in a folder that everybody may read."""
    folder = out / "models" / variant.name
    shutil.rmtree(folder, ignore_errors=True)
    written = _written(out)
    for name in _MODELS[variant.name]:
        shutil.copytree(written[name], folder / name)
    _open_to_all(folder)
    return folder


def _written(out: Path) -> dict[str, Path]:
    """The models of the demo and of the examples by name; `tiny_vllm` is the one of vLLM."""
    silent: Callable[[str], None] = lambda line: None  # noqa: E731
    demo, vllm, examples = out / "models" / "demo", out / "models" / "vllm", out / "models" / "more"
    write_demo(demo, report=silent)
    write_demo(vllm, llm="vllm", report=silent)
    write_examples(examples, report=silent)
    found = {path.parent.name: path.parent for path in examples.glob("*/*/config.pbtxt")}
    found |= {path.parent.name: path.parent for path in demo.glob("*/config.pbtxt")}
    named = out / "models" / "tiny_vllm"
    shutil.rmtree(named, ignore_errors=True)
    shutil.copytree(vllm / "tiny_llm", named)
    configuration = named / "config.pbtxt"
    configuration.write_text(configuration.read_text().replace('"tiny_llm"', '"tiny_vllm"'))
    return found | {"tiny_vllm": named}


def _open_to_all(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        path.chmod(path.stat().st_mode | (0o555 if path.is_dir() else 0o444))


@contextmanager
def _serving(
    tool: Tool, image: str, models: Path, log: Path, *command: str
) -> Iterator[tuple[Running, float]]:
    """A server in a container, ready, and after how many seconds it was."""
    begin = time.monotonic()
    with running(tool, image, models, log, *command) as server:
        url = f"http://{server.addresses.get('http')}/v2/health/ready"
        while not (server.addresses and answers(url)):
            if server.process.poll() is not None or time.monotonic() - begin > READY_SECONDS:
                lines = log.read_text("utf-8", "replace").splitlines()[-12:]
                raise ImageError("not ready:\n" + "\n".join(lines))
            time.sleep(0.05)
        yield server, time.monotonic() - begin


# -- the trials: each says in a few words what it saw ----------------------------------------------

_LOOK = """
import json, os
status = dict(line.split(":\\t", 1) for line in open("/proc/1/status") if ":\\t" in line)
def writable(folder):
    try:
        open(folder + "/tried", "w").close()
    except OSError:
        return False
    os.remove(folder + "/tried")
    return True
places = "/ /usr /opt/penstock /models /tmp /home/penstock".split()
status["writable"] = [place for place in places if writable(place)]
print(json.dumps(status))
"""


def _confined(server: Running) -> str:
    status = json.loads(server.execute("python", "-c", _LOOK))
    user = int(status["Uid"].split()[0])
    if user != 1000 or int(status["CapEff"], 16) or not int(status["NoNewPrivs"]):
        raise ImageError(f"it may more than it should: {status}")
    if status["writable"] != ["/tmp"]:
        raise ImageError(f"it can write to {status['writable']}")
    filtered = ", seccomp" if int(status["Seccomp"]) == 2 else ", no seccomp filter"
    return f"{user}, no capabilities{filtered}; writes to /tmp alone"


def _healthy(server: Running) -> str:
    """Run the image's HEALTHCHECK: podman by hand, docker's daemon by itself."""
    if server.tool.name == "podman":
        server.tool.tell("healthcheck", "run", server.name)
        return "healthy"
    form = "{{.State.Health.Status}}"
    end = time.monotonic() + 60
    while (
        state := server.tool.tell("inspect", f"--format={form}", server.name).strip()
    ) != "healthy":
        if time.monotonic() > end:
            raise ImageError(f"its health is {state}")
        time.sleep(0.5)
    return state


def _text(*values: str) -> _Array:
    return np.array([[value.encode() for value in values]], np.object_)


_NUMBERS = np.arange(16, dtype=np.int32)[None]
_UNARY: Mapping[str, tuple[Mapping[str, _Array], str, Callable[[_Array], bool]]] = {
    "simple_identity": ({"INPUT0": _text("a", "bc")}, "OUTPUT0", lambda o: o[0, 1] == b"bc"),
    "simple": (
        {"INPUT0": _NUMBERS, "INPUT1": _NUMBERS},
        "OUTPUT0",
        lambda o: bool((o == 2 * _NUMBERS).all()),
    ),
    "identity": ({"INPUT0": np.ones((1, 5), np.float32)}, "OUTPUT0", lambda o: o.shape == (1, 5)),
    "minilm": (
        {"TEXT": _text("Water turns the turbine.")},
        "EMBEDDING",
        lambda o: o.shape == (1, 384) and bool(np.isfinite(o).all()),
    ),
    "reranker": (
        {"QUERY": _text("water"), "PASSAGE": _text("A river.")},
        "SCORE",
        lambda o: 0 <= float(o[0, 0]) <= 1,
    ),
}


def _inputs(package: Any, arrays: Mapping[str, _Array]) -> list[Any]:
    found = []
    for name, array in arrays.items():
        one = package.InferInput(name, array.shape, np_to_triton_dtype(array.dtype))
        one.set_data_from_numpy(array)
        found.append(one)
    return found


def _unary(package: Any, client: Any) -> str:
    """Ask the models that answer once."""
    if not (client.is_server_live() and client.is_server_ready()):
        raise ImageError("it is not ready")
    asked = [name for name in _UNARY if client.is_model_ready(name)]
    for name in asked:
        arrays, output, right = _UNARY[name]
        answer = client.infer(name, _inputs(package, arrays)).as_numpy(output)
        if not right(answer):
            raise ImageError(f"{name} answered {answer}")
    return ", ".join(asked)


def _over_http(server: Running) -> str:
    with httpclient.InferenceServerClient(server.addresses["http"]) as client:
        return _unary(httpclient, client)


def _over_grpc(server: Running) -> str:
    with grpcclient.InferenceServerClient(server.addresses["grpc"]) as client:
        return _unary(grpcclient, client)


class _Stream:
    """A stream of the client, and what comes of it."""

    def __init__(self, address: str) -> None:
        self._client = grpcclient.InferenceServerClient(address)
        self._replies: queue.Queue[tuple[Any, Any]] = queue.Queue()

    def __enter__(self) -> _Stream:
        self._client.start_stream(lambda result, error: self._replies.put((result, error)))
        return self

    def __exit__(self, *_: object) -> None:
        self._client.stop_stream()
        self._client.close()

    def ask(self, model: str, **arrays: _Array) -> None:
        self._client.async_stream_infer(
            model, _inputs(grpcclient, arrays), enable_empty_final_response=True
        )

    def replies(self, output: str) -> Iterator[_Array]:
        """The tensors of the request that was asked, until its last reply."""
        while True:
            result, error = self._replies.get(timeout=_END_SECONDS)
            if error is not None:
                raise error
            if (array := result.as_numpy(output)) is not None:
                yield array
            if result.get_response().parameters["triton_final_response"].bool_param:
                return


def _streams(server: Running) -> str:
    """Ask the models that answer several times."""
    with grpcclient.InferenceServerClient(server.addresses["grpc"]) as client:
        named = [name for name in ("tiny_llm", "tiny_vllm") if client.is_model_ready(name)]
    with _Stream(server.addresses["grpc"]) as stream:
        stream.ask("square_int32", IN=np.array([3], np.int32))
        if (count := len([*stream.replies("OUT")])) != 3:
            raise ImageError(f"square_int32 answered {count} times")
        for name in named:
            sampling = json.dumps({"max_tokens": 12, "temperature": 0})
            stream.ask(
                name,
                text_input=_text("The function returns")[0],
                stream=np.array([True]),
                sampling_parameters=_text(sampling)[0],
            )
            if len([*stream.replies("text_output")]) < 2:
                raise ImageError(f"{name} did not stream")
    return ", ".join(["square_int32", *named])


def _openai(server: Running) -> str:
    base = f"http://{server.addresses['http']}/v1"
    with urllib.request.urlopen(f"{base}/models", timeout=20) as answer:
        ids = [model["id"] for model in json.load(answer)["data"]]
    model = next(name for name in ids if name in ("tiny_llm", "tiny_vllm"))
    body = {"model": model, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8}
    asked = urllib.request.Request(
        f"{base}/chat/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(asked, timeout=60) as answer:
        tokens = json.load(answer)["usage"]["completion_tokens"]
    return f"chat with {model}: {tokens} tokens"


def _drain(server: Running) -> str:
    """A stream that runs when SIGTERM comes is answered to its end, and nothing new is begun."""
    count, pause = 20, 100  # milliseconds
    delays = np.full(count, pause, np.uint32)
    refused = False
    with _Stream(server.addresses["grpc"]) as stream:
        stream.ask(
            "repeat_int32",
            IN=np.arange(count, dtype=np.int32),
            DELAY=delays,
            WAIT=np.zeros(1, np.uint32),
        )
        replies = stream.replies("OUT")
        got = [int(next(replies)[0])]
        begin = time.monotonic()
        server.terminate()
        for reply in replies:
            got.append(int(reply[0]))
            refused = refused or not answers(f"http://{server.addresses['http']}/v2/health/ready")
    status = server.process.wait(_END_SECONDS)
    seconds = time.monotonic() - begin
    if got != [*range(count)]:
        raise ImageError(f"of {count} replies there came {got}")
    if not refused:
        raise ImageError("it was ready for more after SIGTERM")
    if status != 0:
        raise ImageError(f"it ended with status {status}")
    return f"all {count} replies, ended with 0 after {seconds:.1f} s"


def _explicit(tool: Tool, image: str, models: Path, log: Path, model: str) -> str:
    """S034: values behind spaces, and one model of several."""
    line = ("--model-repository", "/models", "--model-control-mode", "explicit")
    command = ("tritonserver", *line, "--load-model", model)
    with (
        _serving(tool, image, models, log, *command) as (server, _),
        grpcclient.InferenceServerClient(server.addresses["grpc"]) as client,
    ):
        index = client.get_model_repository_index(as_json=True)["models"]
    ready = [one["name"] for one in index if one.get("state") == "READY"]
    if ready != [model]:
        raise ImageError(f"ready are {ready}")
    return f"{model} alone"


def _verbose(tool: Tool, image: str, models: Path, log: Path) -> str:
    """S035: more lines in the log."""
    counts = []
    for more in ((), ("--log-verbose=1",)):
        with _serving(tool, image, models, log, *_SERVER, *more) as (server, _):
            _over_http(server)
        counts.append(len(log.read_text("utf-8", "replace").splitlines()))
    if counts[1] <= counts[0]:
        raise ImageError(f"{counts[1]} lines, and {counts[0]} without it")
    return f"{counts[1]} lines, {counts[0]} without it"


def _lacking(tool: Tool, variant: Variant, out: Path) -> str:
    """The server ends, and says what to install or which image to build."""
    folder = out / "models" / f"{variant.name}-lacks"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(_written(out)[variant.lacks], folder / variant.lacks)
    _open_to_all(folder)
    log = out / f"{variant.name}.lacks.log"
    with running(tool, tag(variant), folder, log, *_SERVER) as server:
        status = server.process.wait(_END_SECONDS)
    text = log.read_text("utf-8", "replace")
    unsaid = [words for words in variant.says if words not in text]
    if status == 0 or unsaid:
        raise ImageError(f"it ended with {status} and did not say {unsaid}:\n{text[-900:]}")
    return f"{variant.lacks}: ends with {status}, names the pip line and ENGINE"
