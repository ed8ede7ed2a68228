"""One engine for all tests of this folder, which run only where vLLM is installed."""

from __future__ import annotations

import json
import os
import random
import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar

import pytest
import pytest_asyncio

from penstock.backend import OTLP_ENDPOINT, OTLP_PROTOCOL
from penstock.core.config import ModelConfig, Parameter
from penstock.testing import RunningInstance, running
from penstock_backends.vllm import VllmBackend

collect_ignore_glob = [] if "PENSTOCK_TEST_VLLM" in os.environ else ["*"]


START_LIMIT = 1200
"""Seconds in which an engine starts on the busiest machine: it takes half a minute of CPU time."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put last what kills the engine of all others; give each the time in which one starts."""
    items.sort(key=lambda item: item.name.startswith("test_a_dead_engine"))
    for item in items:
        item.add_marker(pytest.mark.time_limit(START_LIMIT))


SETTINGS = {
    "model": "model",
    "dtype": "float32",
    "enforce_eager": True,
    "gpu_memory_utilization": 0.3,
    "max_model_len": 1024,
    "max_num_seqs": 16,
    "max_num_batched_tokens": 1024,
    "enable_prefix_caching": False,
    "enable_lora": "true",
    "max_lora_rank": 8,
    "distributed_executor_backend": "mp",  # the model in a process of its own, as always on CPUs
}
IN_CORE = {"distributed_executor_backend": "uni"}
"""The model in the process of the engine's core, as vLLM has it on one GPU."""


def free_port() -> int:
    """A free port that no client of another test gets in the meantime: not an ephemeral one."""
    while True:
        port = random.randrange(20_000, 30_000)
        with socket.socket() as server:
            try:
                server.bind(("", port))
            except OSError:
                continue
            return port


def add_adapter(model: Path, folder: Path, seed: int = 1) -> None:
    """A random adapter, strong enough to change every text."""
    import numpy as np
    from safetensors.numpy import save_file

    config = json.loads((model / "config.json").read_text())
    hidden, rank = config["hidden_size"], 8
    rows = config["num_attention_heads"] * config["head_dim"]
    random = np.random.default_rng(seed)
    tensors = {}
    for layer in range(config["num_hidden_layers"]):
        name = f"base_model.model.model.layers.{layer}.self_attn.q_proj"
        tensors[f"{name}.lora_A.weight"] = random.standard_normal((rank, hidden), np.float32)
        tensors[f"{name}.lora_B.weight"] = random.standard_normal((rows, rank), np.float32)
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    description = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": rank,
        "lora_alpha": 16,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": ["q_proj"],
        "base_model_name_or_path": "tiny_llm",
    }
    (folder / "adapter_config.json").write_text(json.dumps(description))


@pytest.fixture(scope="session")
def version(checkpoint_version: Path) -> Path:
    (checkpoint_version / "model.json").write_text(json.dumps(SETTINGS))
    names = {"loud": "loud", "torn": "torn", "gone": "gone"}
    (checkpoint_version / "multi_lora.json").write_text(json.dumps(names))
    add_adapter(checkpoint_version / "model", checkpoint_version / "loud")
    add_adapter(checkpoint_version / "model", checkpoint_version / "torn")
    weights = checkpoint_version / "torn" / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:5000])
    return checkpoint_version


class Collector(BaseHTTPRequestHandler):
    """A collector of spans: the bodies of what is posted."""

    bodies: ClassVar[list[bytes]] = []

    def do_POST(self) -> None:
        self.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="session")
def collected() -> Iterator[list[bytes]]:
    """What vLLM exports, as the model process of a server would that exports its spans."""
    with pytest.MonkeyPatch.context() as patch, HTTPServer(("127.0.0.1", 0), Collector) as server:
        patch.setenv(OTLP_ENDPOINT, f"http://127.0.0.1:{server.server_port}/v1/traces")
        patch.setenv(OTLP_PROTOCOL, "http/protobuf")
        for name in ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_TRACES_SAMPLER"):
            patch.setenv(name, "")  # which the backend sets
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield Collector.bodies
        server.shutdown()
        thread.join()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def instance(version: Path, collected: list[bytes]) -> AsyncIterator[RunningInstance]:
    parameters = {"REPORT_CUSTOM_METRICS": Parameter("true")}
    config = ModelConfig(name="m", parameters=parameters)
    async with running(VllmBackend, config, version) as instance:
        yield instance


@dataclass(frozen=True)
class Sharing:
    """An engine with a connector that publishes KV events on a port; it tells reasoning apart."""

    instance: RunningInstance
    port: int


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def sharing(
    version: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Sharing]:
    folder, port = tmp_path_factory.mktemp("sharing"), free_port()
    values = {
        **SETTINGS,
        **IN_CORE,
        "model": str(version / "model"),
        "enable_lora": False,
        "enable_prefix_caching": True,
        "kv_events_config": {"enable_kv_cache_events": True, "endpoint": f"tcp://*:{port}"},
        "kv_transfer_config": {
            "kv_connector": "TellingConnector",
            "kv_connector_module_path": "backends.vllm.real.connector",
            "kv_role": "kv_both",
        },
        "reasoning_parser": "granite",
        "structured_outputs_config": {"enable_in_reasoning": True},
    }
    (folder / "model.json").write_text(json.dumps(values))
    async with running(VllmBackend, ModelConfig(name="m"), folder) as instance:
        yield Sharing(instance, port)
