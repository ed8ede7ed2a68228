"""Language-model engines without a server: the floor of the `tokens` scenario.

    python -m loadtest.engines ENGINE MODEL_DIRECTORY STREAMS ROUNDS

On each stream so many requests follow each other. Prints one line of JSON. Runs in the engine's
own environment, so it imports nothing of ours.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_PROMPT = "What is a list?"
_TOKENS = 128


class Tally:
    """Requests finished and their times to the first token."""

    def __init__(self) -> None:
        self.finished = 0
        self.firsts: list[float] = []

    def result(self, seconds: float, cpu: float) -> dict[str, float]:
        """Rates and medians."""
        tokens = self.finished * _TOKENS
        return {
            "tokens_per_second": tokens / seconds,
            "first_p50": statistics.median(self.firsts) * 1e3,
            "cpu_per_token": cpu / tokens * 1e6,
        }


def openvino_genai(directory: Path, streams: int, rounds: int) -> dict[str, float]:
    """The continuous batching pipeline, stepped in a loop that does nothing else."""
    import numpy as np
    import openvino as ov
    import openvino_genai as genai
    from tokenizers import Tokenizer
    from tokenizers.decoders import DecodeStream

    settings = json.loads((directory / "model.json").read_text())
    scheduler = genai.SchedulerConfig()
    scheduler.num_kv_blocks = settings["num_kv_blocks"]
    scheduler.max_num_seqs = settings["max_num_seqs"]
    scheduler.max_num_batched_tokens = settings["max_num_batched_tokens"]
    scheduler.dynamic_split_fuse = True
    scheduler.enable_prefix_caching = settings["enable_prefix_caching"]
    model = str(directory / settings["model"])
    pipeline = genai.ContinuousBatchingPipeline(model, scheduler, "CPU", settings["properties"])
    tokenizer = Tokenizer.from_file(str(directory / settings["tokenizer"]))
    prompt = ov.Tensor(np.array([tokenizer.encode(_PROMPT).ids], dtype=np.int64))
    config = genai.GenerationConfig()
    config.apply_chat_template, config.max_new_tokens, config.ignore_eos = False, _TOKENS, True
    live: dict[int, Any] = {}
    tally = Tally()

    def add(number: int) -> None:
        handle = pipeline.add_request(number, prompt, config)
        live[number] = [handle, DecodeStream(skip_special_tokens=True), time.perf_counter(), False]

    def step() -> None:
        pipeline.step()
        for number, entry in list(live.items()):
            handle, decoder, start, begun = entry
            if not handle.can_read():
                continue
            output = handle.read()[0]
            "".join(filter(None, (decoder.step(tokenizer, i) for i in output.generated_ids)))
            if not begun:
                entry[3] = True
                tally.firsts.append(time.perf_counter() - start)
            if output.finish_reason != genai.GenerationFinishReason.NONE:
                del live[number]
                tally.finished += 1

    return _closed_loop(streams, rounds, tally, add, step, live)


def _closed_loop(
    streams: int,
    rounds: int,
    tally: Tally,
    add: Callable[[int], None],
    step: Callable[[], None],
    live: dict[int, Any],
) -> dict[str, float]:
    number = 0
    start, cpu = time.perf_counter(), time.process_time()
    while live or number < streams * rounds:
        while len(live) < streams and number < streams * rounds:
            number += 1
            add(number)
        step()
    return tally.result(time.perf_counter() - start, time.process_time() - cpu)


def vllm(directory: Path, streams: int, rounds: int) -> dict[str, float]:
    """`AsyncLLM`, with as many consumers as streams."""
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    return asyncio.run(_vllm(directory, streams, rounds))


async def _vllm(directory: Path, streams: int, rounds: int) -> dict[str, float]:
    from vllm import AsyncEngineArgs, SamplingParams
    from vllm.sampling_params import RequestOutputKind
    from vllm.v1.engine.async_llm import AsyncLLM

    settings = json.loads((directory / "model.json").read_text())
    settings["model"] = str(directory / settings["model"])
    engine = AsyncLLM.from_engine_args(AsyncEngineArgs(**settings))
    sampling = SamplingParams(
        max_tokens=_TOKENS, temperature=0, ignore_eos=True, output_kind=RequestOutputKind.DELTA
    )
    tally = Tally()

    async def consume(stream: int, rounds: int) -> None:
        for number in range(rounds):
            start, begun = time.perf_counter(), False
            async for _ in engine.generate(_PROMPT, sampling, f"{stream}-{number}"):
                if not begun:
                    begun = True
                    tally.firsts.append(time.perf_counter() - start)
            tally.finished += 1

    await consume(-1, 1)
    tally = Tally()
    start, cpu = time.perf_counter(), _family_cpu()
    await asyncio.gather(*(consume(stream, rounds) for stream in range(streams)))
    result = tally.result(time.perf_counter() - start, _family_cpu() - cpu)
    engine.shutdown(timeout=1)
    return result


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


if __name__ == "__main__":
    engines = {"openvino_genai": openvino_genai, "vllm": vllm}
    print(json.dumps(engines[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))))
