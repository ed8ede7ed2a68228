"""Runs of upstream's client examples: with which arguments, and what each has to print.

The arguments are those of the scripts `qa/L0_http`, `qa/L0_grpc` and `qa/L0_https` of upstream.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_PASS = ("PASS",)
# They end with status 0, and print no PASS.
_SILENT = {
    "memory_growth_test.py",
    "reuse_infer_objects_client.py",
    "simple_grpc_health_metadata.py",
    "simple_http_async_infer_client.py",
    "simple_http_health_metadata.py",
    "simple_http_infer_client.py",
}

# Texts of examples that no server can answer, and why.
_IMPOSSIBLE = {
    'model_name = "densenet_onnx"\n    model_version = ""\n    batch_size = 1': (
        "it sends Inception's tensors to densenet_onnx, which any server refuses"
    ),
    'model_name = "inception_graphdef"': "inception_graphdef is no longer in upstream's repository",
    'InferInput("PROMPT"': "it asks for a model that upstream has replaced",
}


@dataclass(frozen=True, slots=True)
class Run:
    """One run of an example. `{URL}`, `{CA}` and `{IMAGES}` in its arguments are filled in."""

    file: str
    protocol: str = "grpc"
    arguments: tuple[str, ...] = ("-v", "-u", "{URL}")
    server: str = "plain"
    prints: tuple[str, ...] = _PASS

    def __str__(self) -> str:
        words = (word for word in self.arguments if word not in ("-v", "-u", "{URL}"))
        return " ".join((self.file, *words))

    def impossible(self, text: str) -> str:
        """Why an example with this text cannot pass here; empty if it can."""
        if "cudashm" in self.file and not Path("/dev/nvidiactl").exists():
            return "no GPU"
        return next((why for part, why in _IMPOSSIBLE.items() if part in text), "")


def _run(file: str, protocol: str, *options: str, server: str = "plain") -> Run:
    prints = () if file in _SILENT else _PASS
    return Run(file, protocol, ("-v", "-u", "{URL}", *options), server, prints)


def _simple() -> Iterator[Run]:
    """`simple_KIND_REST` for every kind of client, and each set of options."""
    every = ("grpc", "grpc_aio", "http", "http_aio")
    files: tuple[tuple[str, tuple[str, ...], tuple[tuple[str, ...], ...]], ...] = (
        ("infer_client.py", every, ((),)),
        ("async_infer_client.py", ("grpc", "http"), ((),)),
        ("string_infer_client.py", every, ((),)),
        ("health_metadata.py", every, ((),)),
        ("keepalive_client.py", ("grpc", "grpc_aio"), ((), ("--grpc-keepalive-time=10000",))),
        ("custom_args_client.py", ("grpc", "grpc_aio"), ((),)),
        ("shm_client.py", every, ((),)),
        ("shm_string_client.py", every, ((),)),
        ("cudashm_client.py", every, ((),)),
        ("sequence_sync_infer_client.py", every, ((), ("-d",), ("-o", "3"))),
        ("sequence_stream_infer_client.py", ("grpc", "grpc_aio"), ((), ("-d",), ("-o", "3"))),
        ("custom_repeat.py", ("grpc",), ((),)),
        ("model_control.py", every, ((),)),
    )
    for rest, kinds, sets in files:
        for kind in kinds:
            for options in sets:
                yield _run(f"simple_{kind}_{rest}", kind.partition("_")[0], *options)


def _variants() -> Iterator[Run]:
    """The first example of each kind again: compressed, with headers, over TLS."""
    for codec in ("gzip", "deflate"):
        for kind in ("grpc", "grpc_aio"):
            yield _run(f"simple_{kind}_infer_client.py", "grpc", "-C", codec)
        for kind in ("http", "http_aio"):
            both = (f"--re{way}-compression-algorithm={codec}" for way in ("quest", "sponse"))
            yield _run(f"simple_{kind}_infer_client.py", "http", *both)
    for kind in ("grpc", "grpc_aio"):
        file = f"simple_{kind}_infer_client.py"
        yield _run(file, "grpc", "--ssl", "--root-certificates", "{CA}", server="tls")
    for kind in ("http", "http_aio"):
        file = f"simple_{kind}_infer_client.py"
        yield _run(file, "http", "-Habc:xyz", "-H123:456")
        yield _run(file, "http", "--ssl", "--ca-certs", "{CA}", server="tls")
        yield _run(file, "http", "--ssl", "--insecure", server="tls")


def _others() -> Iterator[Run]:
    for kind in ("byte", "int8", "int"):
        yield _run(f"grpc_explicit_{kind}_content_client.py", "grpc")
    yield _run("grpc_client.py", "grpc")
    for protocol in ("grpc", "http"):
        yield _run("reuse_infer_objects_client.py", protocol, "-i", protocol)
        options = ("-i", protocol, "-r", "20")
        yield Run("memory_growth_test.py", protocol, options, "default ports", ())
    yield _run("vllm_client.py", "grpc", "--model-name", "vllm")


def _images() -> Iterator[Run]:
    """Image clients: one image, three as a batch and one after another."""
    one, all_ = "{IMAGES}/green.png", "{IMAGES}"
    classified = ("-c", "2", "-s", "INCEPTION", "-m")
    for model in ("densenet_onnx", "inception_onnx"):
        for way in ((), ("--async",), ("--streaming",)):
            yield _image("grpc_image_client.py", "grpc", *way, *classified, model, one)
            yield _image("image_client.py", "grpc", "-i", "grpc", *way, *classified, model, one)
            if way != ("--streaming",):
                yield _image("image_client.py", "http", *way, *classified, model, one)
    for protocol in ("grpc", "http"):
        batch = ("-i", protocol, "-b", "3", *classified, "inception_onnx", all_)
        yield _image("image_client.py", protocol, *batch)
        yield _image("ensemble_image_client.py", protocol, "-i", protocol, "-c", "1", all_)


def _image(file: str, protocol: str, *options: str) -> Run:
    several = options[-1] == "{IMAGES}"
    found = tuple(f"= {name}" for name in (("GREEN", "RED", "BLUE") if several else ("GREEN",)))
    return Run(file, protocol, ("-u", "{URL}", *options), prints=("PASS", *found))


RUNS = (*_simple(), *_variants(), *_others(), *_images())
