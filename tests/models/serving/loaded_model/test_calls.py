"""Requests of instances: refused where they could never be answered, and only there."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fakes import FakeInstance, make_model, make_request, marks, model_config
from models.serving.loaded_model.schedulers import Refusing
from penstock.core.call_chain import CallingInstance, NestedCall
from penstock.core.config import (
    DynamicBatching,
    ModelConfig,
    QueuePolicy,
    SequenceBatching,
    TimeoutAction,
)
from penstock.core.errors import InvalidRequestError, UnsupportedError
from penstock.core.request import InferenceRequest
from penstock.inflight.statistics import Statistics
from penstock.models.serving.loaded_model import LoadedModel, ModelParts
from penstock.scheduling.direct import DirectScheduler


def calling(name: str = "m_0", **options: bool) -> FakeInstance:
    """An instance that can make requests, held by what it executes."""
    instance = FakeInstance(name, held=True, **options)
    instance.caller = CallingInstance(name)
    return instance


def called_by(*callers: CallingInstance | None, holds: bool = True) -> InferenceRequest:
    """A request that instances wait for, the first of them outermost."""
    known = [caller for caller in callers if caller is not None]
    return make_request(call_chain=tuple(NestedCall(caller, blocking=holds) for caller in known))


# -- cycles of one instance ------------------------------------------------------------------------


async def test_a_call_from_the_only_instance_is_refused_with_the_chain() -> None:
    instance = calling()
    request = called_by(instance.caller, CallingInstance("b_0"), holds=False)
    with pytest.raises(UnsupportedError, match=r"is waiting for: m_0 -> b_0 -> m; the call would"):
        make_model(instance).infer(request)


async def test_a_passive_instance_answers_no_call() -> None:
    instance, passive = calling(), calling("m_1", passive=True)
    with pytest.raises(UnsupportedError):
        make_model(instance, passive).infer(called_by(instance.caller))


async def test_a_call_from_before_a_reload_is_answered() -> None:
    """The new instance has the name of the old one."""
    old, new = calling(), calling()
    new.release()
    assert await marks(make_model(new).infer(called_by(old.caller))) == [""]


async def test_an_instance_that_takes_several_batches_may_call_itself() -> None:
    instance = calling(serial=False)
    instance.release()
    assert await marks(make_model(instance).infer(called_by(instance.caller))) == [""]


# -- cycles of several instances -------------------------------------------------------------------


async def test_a_call_that_crosses_another_is_refused_with_who_waits() -> None:
    ours, theirs = calling(), calling("b_0")
    make_model(theirs).infer(called_by(ours.caller))
    with pytest.raises(UnsupportedError, match=r"called by instance 'b_0', .* that one: m_0; the"):
        make_model(ours).infer(called_by(theirs.caller))


async def test_an_instance_that_has_its_answer_waits_no_more() -> None:
    ours, theirs = calling(), calling("b_0")
    stream = make_model(theirs).infer(called_by(ours.caller))
    theirs.release()
    assert await marks(stream) == [""]
    ours.release()
    assert await marks(make_model(ours).infer(called_by(theirs.caller))) == [""]


async def test_an_instance_whose_call_was_refused_does_not_wait() -> None:
    ours, theirs = calling(), calling("b_0")
    refusing = LoadedModel(ModelParts(model_config(), 1, Refusing(), Statistics()), [theirs])
    with pytest.raises(InvalidRequestError):
        refusing.infer(called_by(ours.caller))
    ours.release()
    assert await marks(make_model(ours).infer(called_by(theirs.caller))) == [""]


@pytest.mark.parametrize("holds", [(True, False), (False, True)], ids=["the last", "the first"])
async def test_who_can_do_something_else_may_cross(holds: Sequence[bool]) -> None:
    ours, theirs = calling(), calling("b_0")
    make_model(theirs).infer(called_by(ours.caller, holds=holds[0]))
    stream = make_model(ours).infer(called_by(theirs.caller, holds=holds[1]))
    ours.release()
    assert await marks(stream) == [""]


_LIMITED = QueuePolicy(TimeoutAction.REJECT, default_timeout_microseconds=5)
_LIMITS = [
    DynamicBatching(default_queue_policy=_LIMITED),
    DynamicBatching(priority_levels=1, priority_queue_policy={1: _LIMITED}),
    DynamicBatching(default_queue_policy=QueuePolicy(allow_timeout_override=True)),
]


@pytest.mark.parametrize(
    "config",
    [
        *(model_config(dynamic_batching=batching) for batching in _LIMITS),
        model_config(sequence_batching=SequenceBatching()),
    ],
    ids=["time limit", "time limit of a level", "time limit of a request", "sequences"],
)
async def test_a_request_that_may_leave_the_queue_unanswered_closes_no_circle(
    config: ModelConfig,
) -> None:
    ours, theirs = calling(), calling("b_0")
    make_model(theirs, config=config).infer(called_by(ours.caller))
    stream = make_model(ours).infer(called_by(theirs.caller))
    ours.release()
    assert await marks(stream) == [""]


async def test_a_request_that_a_cache_may_answer_closes_no_circle() -> None:
    ours, theirs = calling(), calling("b_0")
    make_model(theirs).infer(called_by(ours.caller))
    cached, batcher = DirectScheduler([ours]), DirectScheduler([ours])
    model = LoadedModel(
        ModelParts(model_config(), 1, cached, Statistics(), batcher=batcher), [ours]
    )
    stream = model.infer(called_by(theirs.caller))
    ours.release()
    assert await marks(stream) == [""]
