"""Language-model engines without a server, in a process of their own: the floor of scenarios.

    python -m loadtest.engines ENGINE MODEL_DIRECTORY [THREADS]

Reads a line of JSON for each measurement, `{"streams": 8, "rounds": 2, "tokens": 128}`, and answers
each with a line: on every stream so many requests follow each other. With `"piped": true` they come
from another process, one after another, and their texts go back there. Runs in the engine's own
environment, so it imports nothing of the server.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from loadtest.pipe_client import NUMBER, outcome, text_message
from loadtest.stream_tally import Call, Tally

PROMPT = "What is a list?"


class Plan(NamedTuple):
    """On each of so many streams so many requests, each for so many tokens."""

    streams: int
    rounds: int
    tokens: int
    piped: bool = False


class Engine(Protocol):
    """An engine that is loaded."""

    def measure(self, plan: Plan) -> dict[str, float]:
        """Rates, and times in milliseconds."""


def _result(plan: Plan, tally: Tally, seconds: float, cpu: float) -> dict[str, float]:
    tokens = plan.streams * plan.rounds * plan.tokens
    return {**outcome(tally, tokens, seconds), "cpu_per_token": cpu / tokens * 1e6}


class OpenVinoGenAi:
    """The continuous batching pipeline, stepped in a loop that does nothing else."""

    def __init__(self, directory: Path, threads: int) -> None:
        import openvino_genai as genai
        from tokenizers import Tokenizer

        settings = json.loads((directory / "model.json").read_text())
        scheduler = genai.SchedulerConfig()
        scheduler.num_kv_blocks = settings["num_kv_blocks"]
        scheduler.max_num_seqs = settings["max_num_seqs"]
        scheduler.max_num_batched_tokens = settings["max_num_batched_tokens"]
        scheduler.dynamic_split_fuse = True
        scheduler.enable_prefix_caching = settings["enable_prefix_caching"]
        properties = settings["properties"] | (
            {"INFERENCE_NUM_THREADS": threads} if threads else {}
        )
        model = str(directory / settings["model"])
        self._genai = genai
        self._pipeline = genai.ContinuousBatchingPipeline(model, scheduler, "CPU", properties)
        self._tokenizer = Tokenizer.from_file(str(directory / settings["tokenizer"]))
        self._number = 0

    def measure(self, plan: Plan) -> dict[str, float]:
        config = self._genai.GenerationConfig()
        config.apply_chat_template, config.ignore_eos = False, True
        config.max_new_tokens = plan.tokens
        return self._piped(plan, config) if plan.piped else self._alone(plan, config)

    def _alone(self, plan: Plan, config: Any) -> dict[str, float]:
        tally, live, left = Tally(), dict[int, Any](), plan.streams * plan.rounds
        calls: dict[int, Call] = {}
        stepping = 0.0
        start, cpu = time.perf_counter(), time.process_time()
        while live or left:
            while len(live) < plan.streams and left:
                left -= 1
                call = Call(time.perf_counter())
                calls[self._add(config, live)] = call
            begun = time.perf_counter()
            self._pipeline.step()
            stepping += time.perf_counter() - begun
            for number, _, last in self._made(live):
                tally.message(calls[number], time.perf_counter())
                if last:
                    tally.ended(calls.pop(number), time.perf_counter())
        seconds, used = time.perf_counter() - start, time.process_time() - cpu
        in_steps = {"steps_ms": stepping / plan.rounds * 1e3}
        return _result(plan, tally, seconds, used) | in_steps

    def _piped(self, plan: Plan, config: Any) -> dict[str, float]:
        """The same with a client in another process: what it takes at least to be asked by one."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            command = [sys.executable, "-m", "loadtest.pipe_client", str(theirs.fileno())]
            command += map(str, plan[:3])
            client = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], stdout=subprocess.PIPE, text=True
            )
            theirs.close()
            cpu = time.process_time()
            self._serve(ours, config)
            used = time.process_time() - cpu
            found: dict[str, float] = json.loads(client.communicate()[0])
        tokens = plan.streams * plan.rounds * plan.tokens
        return {**found, "cpu_per_token": used / tokens * 1e6}

    def _serve(self, client: socket.socket, config: Any) -> None:
        """Read what has come between two steps, and write what a step has made all at once."""
        live, asked = dict[int, Any](), dict[int, int]()
        while True:
            client.setblocking(not live)  # nothing to do until it asks
            try:
                data = client.recv(1 << 16)
            except BlockingIOError:
                data = b""
            if not data and not live:
                return
            for (number,) in NUMBER.iter_unpack(data):
                asked[self._add(config, live)] = number
            self._pipeline.step()
            made = [
                text_message(asked[number], text, last=last)
                for number, text, last in self._made(live)
            ]
            client.setblocking(True)
            client.sendall(b"".join(made))

    def _add(self, config: Any, live: dict[int, Any]) -> int:
        import numpy as np
        import openvino as ov
        from tokenizers.decoders import DecodeStream

        self._number += 1
        prompt = ov.Tensor(np.array([self._tokenizer.encode(PROMPT).ids], dtype=np.int64))
        handle = self._pipeline.add_request(self._number, prompt, config)
        live[self._number] = (handle, DecodeStream(skip_special_tokens=True))
        return self._number

    def _made(self, live: dict[int, Any]) -> list[tuple[int, str, bool]]:
        """Of each request, its number, what the step made of it as text, and whether it ended."""
        made = []
        for number, (handle, decoder) in list(live.items()):
            if not handle.can_read():
                continue
            output = handle.read()[0]
            parts = (decoder.step(self._tokenizer, token) for token in output.generated_ids)
            last = output.finish_reason != self._genai.GenerationFinishReason.NONE
            made.append((number, "".join(filter(None, parts)), last))
            if last:
                del live[number]
        return made


class Vllm:
    """`AsyncLLM`, with as many consumers as streams."""

    def __init__(self, directory: Path, threads: int) -> None:
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
        if threads:
            os.environ["VLLM_CPU_OMP_THREADS_BIND"] = f"0-{threads - 1}"
        self._loop = asyncio.new_event_loop()
        self._number = 0
        self._run(self._start(directory))

    def measure(self, plan: Plan) -> dict[str, float]:
        self._run(self._measure(Plan(1, 1, 8)))  # after a pause the engine's first steps are slow
        found: dict[str, float] = self._run(self._measure(plan))
        return found

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.run_until_complete(work)

    async def _start(self, directory: Path) -> None:
        from vllm import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        settings = json.loads((directory / "model.json").read_text())
        settings["model"] = str(directory / settings["model"])
        self._engine = AsyncLLM.from_engine_args(AsyncEngineArgs(**settings))

    async def _measure(self, plan: Plan) -> dict[str, float]:
        tally = Tally()
        start, cpu = time.perf_counter(), _family_cpu()
        await asyncio.gather(*(self._consume(plan, tally) for _ in range(plan.streams)))
        seconds, used = time.perf_counter() - start, _family_cpu() - cpu
        return _result(plan, tally, seconds, used)

    async def _consume(self, plan: Plan, tally: Tally) -> None:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        sampling = SamplingParams(
            max_tokens=plan.tokens,
            temperature=0,
            ignore_eos=True,
            output_kind=RequestOutputKind.DELTA,
        )
        for _ in range(plan.rounds):
            call = Call(time.perf_counter())
            self._number += 1
            async for _ in self._engine.generate(PROMPT, sampling, str(self._number)):
                tally.message(call, time.perf_counter())
            tally.ended(call, time.perf_counter())


def _family_cpu() -> float:
    """CPU seconds of this process and of the engine's processes below it."""
    return sum(_cpu(pid) for pid in _family(os.getpid()))


def _family(root: int) -> list[int]:
    pids = [root]
    for task in Path(f"/proc/{root}/task").glob("*/children"):
        for child in task.read_text().split():
            pids += _family(int(child))
    return pids


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    engines: dict[str, Callable[[Path, int], Engine]] = {
        "openvino_genai": OpenVinoGenAi,
        "vllm": Vllm,
    }
    threads = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    engine = engines[sys.argv[1]](Path(sys.argv[2]), threads)
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(engine.measure(Plan(**json.loads(line)))), flush=True)


if __name__ == "__main__":
    main()
