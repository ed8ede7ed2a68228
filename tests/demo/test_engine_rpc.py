"""The demo's language model for routers of engines, and a Penstock before it as one of these."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from harness.serving import Served, serving, wait_until
from penstock.demo.language_model import CHECKPOINT

pb: Any = pytest.importorskip("smg_grpc_proto.generated.vllm_engine_pb2")
common: Any = pytest.importorskip("smg_grpc_proto.generated.common_pb2")
Stub: Any = pytest.importorskip("smg_grpc_proto.generated.vllm_engine_pb2_grpc").VllmEngineStub

pytestmark = pytest.mark.slow

ENTRY = """
backend: "remote"
parameters { key: "address" value { string_value: "grpc://ADDRESS" } }
parameters { key: "protocol" value { string_value: "vllm" } }
parameters { key: "remote_model" value { string_value: "tiny_llm" } }
parameters { key: "tokenizer" value { string_value: "TOKENIZER" } }
"""
PROMPT = {"text_input": "Once upon a time", "max_tokens": 12, "temperature": 0.0}


@pytest.fixture(scope="module")
def worker(demo_repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    log = tmp_path_factory.mktemp("worker") / "log"
    only = ("--model-control-mode=explicit", "--load-model=tiny_llm")
    with serving(demo_repository, log, "--engine-rpc=vllm", *only) as server:
        yield server


@pytest.fixture(scope="module")
def before(worker: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A Penstock that asks the worker as routers do, and may itself be asked so."""
    folder = tmp_path_factory.mktemp("before")
    (folder / "models" / "chat" / "1").mkdir(parents=True)
    text = ENTRY.replace("ADDRESS", worker.grpc).replace("TOKENIZER", str(CHECKPOINT))
    (folder / "models" / "chat" / "config.pbtxt").write_text(text)
    with serving(folder / "models", folder / "log", "--engine-rpc=vllm") as server:
        yield server


def generated(server: Served, model: str, **more: Any) -> Any:
    url = f"http://{server.http}/v2/models/{model}/generate"
    return httpx.post(url, json={**PROMPT, **more}, timeout=60).raise_for_status().json()


def in_flight(server: Served) -> float:
    page = httpx.get(server.metrics, timeout=60).text
    return sum(map(float, re.findall(r"^penstock_in_flight_requests{.*} (.*)$", page, re.M)))


def asking(id: str = "", **sampling: Any) -> Any:
    return pb.GenerateRequest(
        request_id=id,
        tokenized=pb.TokenizedInput(input_ids=[5, 6, 7]),
        sampling_params=pb.SamplingParams(temperature=0.0, ignore_eos=True, **sampling),
        stream=True,
    )


@pytest.mark.parametrize("stop", [{}, {"stop": " a"}])
def test_a_penstock_before_it_answers_as_it_does(
    worker: Served, before: Served, stop: dict[str, str]
) -> None:
    here, there = generated(worker, "tiny_llm", **stop), generated(before, "chat", **stop)
    assert there["text_output"] == here["text_output"]


def test_what_is_known_of_a_model_passes_through(worker: Served, before: Served) -> None:
    told = {}
    for server in (worker, before):
        with grpc.insecure_channel(server.grpc) as channel:
            told[server.grpc] = Stub(channel).GetModelInfo(pb.GetModelInfoRequest())
    one, two = told.values()
    assert (one.served_model_name, two.served_model_name) == ("tiny_llm", "chat")
    for field in ("max_context_length", "vocab_size", "eos_token_ids", "model_type"):
        assert getattr(one, field) == getattr(two, field)
        assert getattr(one, field)


def test_tokens_are_the_same_through_both(worker: Served, before: Served) -> None:
    made = []
    for server in (worker, before):
        with grpc.insecure_channel(server.grpc) as channel:
            parts = [*Stub(channel).Generate(asking(max_tokens=20))]
        made.append([token for part in parts for token in part.chunk.token_ids])
        assert parts[-1].complete.finish_reason == "length"
    assert made[0] == made[1]
    assert len(made[0]) == 20


def test_the_tokenizer_that_is_sent_makes_prompts_of_chats(worker: Served) -> None:
    from tokenizers import Tokenizer

    with grpc.insecure_channel(worker.grpc) as channel:
        pieces = [*Stub(channel).GetTokenizer(common.GetTokenizerRequest())]
    with zipfile.ZipFile(io.BytesIO(b"".join(piece.data for piece in pieces))) as archive:
        tokenizer = Tokenizer.from_str(archive.read("tokenizer.json").decode())
        config = json.loads(archive.read("tokenizer_config.json"))
    assert config["chat_template"] == (CHECKPOINT / "chat_template.jinja").read_text()
    assert tokenizer.encode(config["eos_token"]).ids


def test_clients_that_leave_leave_nothing_running(worker: Served, before: Served) -> None:
    with grpc.insecure_channel(before.grpc) as channel:
        stub = Stub(channel)
        calls = [stub.Generate(asking(str(n), max_tokens=900)) for n in range(16)]
        for call in calls:
            next(iter(call))
        for number, call in enumerate(calls):
            if number % 2:
                call.cancel()
            else:
                stub.Abort(pb.AbortRequest(request_ids=[str(number)]))
        ends = [[*call][-1].complete.finish_reason for call in calls[::2]]
    assert ends == ["abort"] * 8
    wait_until(lambda: in_flight(worker) == in_flight(before) == 0)
