"""`TokenScheduler`: what it refuses, holds and hands over, and what its numbers say of it."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from fakes import make_inference, make_response
from penstock.core.config import ModelConfig, Parameter
from penstock.core.errors import ConfigError, ExhaustedError, InferenceError, InternalError
from penstock.core.http_exchange import HttpExchange
from penstock.core.request import InferenceRequest, Sender
from penstock.core.tensor import Tensor
from penstock.inflight.inference import Inference
from penstock.scheduling.tokens.limits import QueueLimits
from penstock.scheduling.tokens.scheduler import TokenScheduler
from penstock.scheduling.tokens.tenants import FairnessPolicy
from penstock.scheduling.tokens.token_queue import TokenQueue, TokenRatio, prompt_bytes, prompt_ids


class Engine:
    """A scheduler that keeps what it is given, and may refuse it."""

    def __init__(self) -> None:
        self.given: list[str] = []
        self.refusal: InferenceError | None = None
        self.told: list[object] = []

    def schedule(self, inference: Inference) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.given.append(inference.request.id)

    def abandon(self, error: InferenceError) -> None:
        self.told.append(error)

    async def drain(self) -> None:
        self.told.append("drained")


def made(policy: FairnessPolicy | None = None, requests: int = 0) -> tuple[TokenScheduler, Engine]:
    engine = Engine()
    queue = TokenQueue("m", QueueLimits(requests), policy)
    return TokenScheduler(engine, queue), engine


def of(tenant: str, id: str = "", **fields: Any) -> Inference:
    return make_inference(id, sender=Sender(tenant, 0), **fields)


PROMPT = {"text_input": Tensor.from_strings(["x" * 400])}
FAIR = FairnessPolicy()


async def test_without_tenants_all_is_handed_over_at_once_and_counted_by_reason() -> None:
    scheduler, engine = made(requests=1)
    first = make_inference("a", inputs=PROMPT)
    scheduler.schedule(first)
    with pytest.raises(ExhaustedError):
        scheduler.schedule(make_inference("b"))
    assert engine.given == ["a"]
    assert scheduler.metrics() == {
        "penstock_llm_queued_requests": 1,
        "penstock_llm_queued_tokens": 100,
        'penstock_llm_rejected_total{reason="queue_requests"}': 1,
        'penstock_llm_rejected_total{reason="queue_tokens"}': 0,
        'penstock_llm_rejected_total{reason="deadline"}': 0,
    }
    assert first.on_usage is not None
    first.on_usage(90, 0, 1)
    waiting = scheduler.metrics()
    assert waiting["penstock_llm_queued_requests"] == waiting["penstock_llm_queued_tokens"] == 0
    first.stream.send(make_response(final=True))
    scheduler.schedule(make_inference("c"))
    assert engine.given == ["a", "c"]


async def test_what_the_engine_refuses_frees_its_place_and_is_told() -> None:
    scheduler, engine = made(requests=1)
    engine.refusal = InternalError("no")
    refused = make_inference("a")
    with pytest.raises(InternalError, match="no"):
        scheduler.schedule(refused)
    refused.refused(engine.refusal)
    engine.refusal = None
    scheduler.schedule(make_inference("b"))
    assert engine.given == ["b"]


async def test_a_callback_of_the_sequence_is_still_called() -> None:
    scheduler, _ = made()
    inference, told = make_inference(), list[str]()
    inference.on_left = lambda: told.append("left")
    scheduler.schedule(inference)
    inference.stream.end()
    assert told == ["left"]


async def test_with_tenants_the_engine_gets_one_more_than_it_runs_and_others_wait_here() -> None:
    scheduler, engine = made(FairnessPolicy(reserve=0))
    scheduler.capacity = lambda: 1
    requests = [of("t", str(n)) for n in range(4)]
    for each in requests:
        scheduler.schedule(each)
    assert engine.given == ["0", "1"]
    assert requests[0].request.scope.sender == Sender("t", 0, "t")
    assert requests[0].request.scope.waited > 0 == requests[2].request.scope.waited
    requests[2].stream.close()  # while it waits here
    requests[0].stream.send(make_response(final=True))
    assert engine.given == ["0", "1", "3"]
    requests[1].fail(InternalError("x"))
    numbers = scheduler.metrics()
    assert numbers['penstock_llm_tenant_requests_total{tenant="t"}'] == 4
    assert numbers['penstock_llm_tenant_cancelled_requests_total{tenant="t"}'] == 1
    assert numbers['penstock_llm_tenant_failed_requests_total{tenant="t"}'] == 1
    assert numbers['penstock_llm_rejected_total{reason="queue_tokens",tenant="t"}'] == 0
    assert 'penstock_llm_rejected_total{reason="queue_tokens"}' not in numbers
    assert numbers["penstock_llm_queued_requests"] == 1


async def test_a_request_that_starts_makes_room_for_another() -> None:
    """While nobody knows how many the engine runs, four of those it has may not have started."""
    scheduler, engine = made(FAIR)
    requests = [of("t", str(n)) for n in range(6)]
    for each in requests:
        scheduler.schedule(each)
    assert engine.given == ["0", "1", "2", "3"]
    assert requests[0].on_usage is not None
    requests[0].on_usage(5, 0, 1)
    assert engine.given == ["0", "1", "2", "3", "4"]
    requests[0].on_usage(5, 0, 2)
    assert len(engine.given) == 5


async def test_a_request_that_fails_on_the_way_makes_room_for_the_next() -> None:
    scheduler, engine = made(FAIR)
    scheduler.capacity = lambda: 1
    requests = [of("t", str(n)) for n in range(4)]
    for each in requests:
        scheduler.schedule(each)
    engine.refusal = InternalError("no")
    requests[0].stream.end()
    assert [one.error for one in requests] == [None, None, engine.refusal, engine.refusal]
    requests[1].stream.end()
    assert scheduler.metrics()["penstock_llm_queued_requests"] == 0


async def test_what_waits_here_is_abandoned_with_the_rest() -> None:
    scheduler, engine = made(FAIR)
    scheduler.capacity = lambda: 1
    requests = [of("t", str(n)) for n in range(4)]
    for each in requests:
        scheduler.schedule(each)
    gone = InternalError("gone")
    scheduler.abandon(gone)
    assert [one.error for one in requests] == [None, None, gone, gone]
    await scheduler.drain()
    assert engine.told == [gone, "drained"]


async def test_a_deadline_is_counted_from_now(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[float | None] = []
    scheduler, _ = made()
    admit = TokenQueue.admit

    def noted(queue: TokenQueue, *arguments: Any) -> Any:
        left.append(arguments[-1])
        return admit(queue, *arguments)

    monkeypatch.setattr(TokenQueue, "admit", noted)
    scheduler.schedule(make_inference(deadline=asyncio.get_running_loop().time() + 60))
    scheduler.schedule(make_inference())
    assert left[0] == pytest.approx(60, abs=5)
    assert left[1] is None


# -- limits and prompts ---------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["-1", "x", "1" * 19, "", "1.5", "٣"])
def test_a_limit_is_a_number_of_18_digits_at_most(text: str) -> None:
    limits = {"penstock.max_queued_requests": "7", "penstock.max_queued_tokens": "9" * 18}
    config = ModelConfig(parameters={name: Parameter(value) for name, value in limits.items()})
    assert QueueLimits.from_config(config) == QueueLimits(7, int("9" * 18))
    assert QueueLimits.from_config(ModelConfig()) == QueueLimits(0, 0)
    for name in limits:
        with pytest.raises(ConfigError) as refused:
            QueueLimits.from_config(ModelConfig(parameters={name: Parameter(text)}))
        assert refused.value.message == (
            f"parameter '{name}' must be a number, or 0 for no limit, got '{text}'"
        )


def test_either_limit_is_one() -> None:
    limits = (QueueLimits(), QueueLimits(1), QueueLimits(0, 1))
    assert [bool(one) for one in limits] == [False, True, True]


def test_a_limit_of_tokens_is_met_exactly() -> None:
    limits = QueueLimits(0, 10)
    assert [limits.refusal(1, 4, more) for more in (6, 7)] == [None, "queue_tokens"]
    assert QueueLimits(3, 0).refusal(2, 99, 99) is None
    assert QueueLimits(3, 0).refusal(3, 0, 0) == "queue_requests"


@pytest.mark.parametrize(
    ("request_", "size", "ids"),
    [
        (InferenceRequest("m", inputs={"text_input": Tensor.from_strings(["abc"])}), 3, 0),
        (InferenceRequest("m", inputs={"text_input": Tensor.from_strings([])}), 0, 0),
        (
            InferenceRequest("m", inputs={"text_input": Tensor.from_numpy(np.zeros(3, np.int32))}),
            *(0, 0),
        ),
        (
            InferenceRequest("m", inputs={"input_ids": Tensor.from_numpy(np.zeros(3, np.int32))}),
            *(0, 3),
        ),
        (InferenceRequest("m", exchange=HttpExchange("POST", "/", body=b"12345")), 5, 0),
        (InferenceRequest("m"), 0, 0),
    ],
)
def test_a_prompt_is_counted_by_its_bytes_or_its_ids(
    request_: InferenceRequest, size: int, ids: int
) -> None:
    assert (prompt_bytes(request_), prompt_ids(request_)) == (size, ids)


def test_a_ratio_begins_at_a_token_for_four_bytes_and_forgets_slowly() -> None:
    ratio = TokenRatio()
    assert [ratio.estimate(size) for size in (0, 1, 4, 5, 4000)] == [1, 1, 1, 2, 1000]
    ratio.observe(0, 5)
    ratio.observe(5, 0)
    assert ratio.estimate(4000) == 1000
    ratio.observe(4096, 4096)
    # 0.95 of 4096 bytes and 1024 tokens, and as many bytes and tokens again.
    assert ratio.estimate(100_000) == -(-100_000 * (1024 * 0.95 + 4096) // (4096 * 0.95 + 4096))
