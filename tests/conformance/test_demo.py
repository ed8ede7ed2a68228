"""The demo as its users meet it: stock clients, each in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from harness.serving import Served

_CHAT = Path(__file__).with_name("chat.py")
_GREEDY = {"max_tokens": 32, "temperature": 0, "ignore_eos": True}

_EMBED = """
import json, sys
import numpy as np
import tritonclient.grpc as grpcclient
client = grpcclient.InferenceServerClient(sys.argv[1])
texts = np.array([[t.encode()] for t in json.loads(sys.argv[2])], dtype=np.object_)
tensor = grpcclient.InferInput("TEXT", texts.shape, "BYTES")
tensor.set_data_from_numpy(texts)
rows = client.infer("minilm", [tensor]).as_numpy("EMBEDDING")
print(json.dumps((rows @ rows.T).tolist()))
"""

_SIMPLE = """
import sys
import numpy as np
import tritonclient.{flavour} as client
server = client.InferenceServerClient(sys.argv[1])
assert server.is_server_live() and server.is_server_ready() and server.is_model_ready("simple")
a, b = np.arange(16, dtype=np.int32).reshape(1, 16), np.ones((1, 16), np.int32)
inputs = [client.InferInput(n, [1, 16], "INT32") for n in ("INPUT0", "INPUT1")]
inputs[0].set_data_from_numpy(a)
inputs[1].set_data_from_numpy(b)
result = server.infer("simple", inputs, request_id="7")
assert (result.as_numpy("OUTPUT0") == a + b).all() and (result.as_numpy("OUTPUT1") == a - b).all()
print("same")
"""


def run(program: str, *arguments: str) -> str:
    """What a program prints, run in a process of its own."""
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


def chat(server: Served, *requests: dict[str, Any]) -> dict[str, Any]:
    """What became of requests to the language model, by id."""
    command = [sys.executable, str(_CHAT), server.grpc, json.dumps(requests)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


def request(number: int, **more: Any) -> dict[str, Any]:
    """A greedy request; a few different prompts take turns."""
    prompts = ("The file is", "What is a list?", "Return the", "A class")
    prompt = prompts[number % len(prompts)]
    return {"id": str(number), "prompt": prompt, "sampling": _GREEDY, **more}


@pytest.mark.contract("VL-06", "VL-10", "VL-11")
def test_tokens_stream_one_after_the_other(server: Served) -> None:
    seen = chat(server, request(0))["0"]
    assert seen["error"] is None
    assert seen["final"]
    assert seen["messages"] >= 3
    assert len(seen["text"].split()) >= 4


def test_the_times_of_language_models_are_on_the_page(server: Served) -> None:
    from harness.serving import wait_until

    chat(server, request(0))
    names = ("queue", "time_to_first_token", "inter_token", "request")
    series = [f'penstock_llm_{name}_seconds_count{{model="tiny_llm"' for name in names]

    def shown() -> bool:
        page = urllib.request.urlopen(server.metrics, timeout=60).read().decode()
        return all(one in page for one in series)

    wait_until(shown)


def test_cancelling_half_of_64_streams_leaves_the_others_as_they_were(server: Served) -> None:
    whole = chat(server, *(request(n) for n in range(64)))
    half = chat(server, *(request(n, **({"cancel_after": 2} if n % 2 else {})) for n in range(64)))
    left = [str(n) for n in range(0, 64, 2)]
    assert [half[n]["text"] for n in left] == [whole[n]["text"] for n in left]
    assert all(half[n]["final"] for n in left)


@pytest.mark.contract("VL-14")
def test_a_cancelled_generation_leaves_nothing_in_the_engine(server: Served) -> None:
    chat(server, request(0, cancel_after=1, sampling={**_GREEDY, "max_tokens": 900}))
    engine_is_idle(server)


def engine_is_idle(server: Served) -> None:
    """No sequence runs or waits, and no block of the KV cache is held, by the engine's count."""
    from harness.serving import wait_until

    def idle() -> bool:
        page = urllib.request.urlopen(server.metrics, timeout=60).read().decode()
        names = ("running_requests", "waiting_requests", "kv_cache_usage")
        return all(f'penstock_llm_{n}{{model="tiny_llm",version="1"}} 0\n' in page for n in names)

    wait_until(idle)


def test_sentences_of_one_meaning_are_close(server: Served) -> None:
    texts = ["A man is eating food.", "A man eats something.", "The sky is full of stars."]
    similar = json.loads(run(_EMBED, server.grpc, json.dumps(texts)))
    assert abs(similar[0][0] - 1) < 1e-5
    assert similar[0][1] > 0.6 > 0.3 > similar[0][2]


def test_simple_adds_and_subtracts_over_grpc(server: Served) -> None:
    assert run(_SIMPLE.format(flavour="grpc"), server.grpc) == "same\n"


def test_simple_adds_and_subtracts_over_http(server: Served) -> None:
    assert run(_SIMPLE.format(flavour="http"), server.http) == "same\n"


@pytest.mark.contract("H-10", "HG-08", "HG-15", "VL-21")
def test_generate_stream_sends_events(server: Served) -> None:
    body = json.dumps({"text_input": "The file is", "stream": True, "parameters": _GREEDY})
    url = f"http://{server.http}/v2/models/tiny_llm/generate_stream"
    with urllib.request.urlopen(url, data=body.encode(), timeout=60) as reply:
        events = [json.loads(line[6:]) for line in reply.read().decode().split("\n\n") if line]
    assert len(events) > 1  # however many tokens came together
    assert "".join(event["text_output"] for event in events)


@pytest.mark.contract("M-18", "GT-03", "H-32", "W-01")
def test_start_lines_and_model_table_are_printed(server: Served) -> None:
    log = server.log.read_text()
    assert f"Started GRPCInferenceService at 0.0.0.0:{server.ports['grpc']}" in log
    assert "| tiny_llm | 1       | READY  |" in log
