"""The account of a memory budget."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.config import (
    AllVersions,
    InstanceGroup,
    InstanceKind,
    ModelConfig,
    VersionPolicy,
)
from penstock.core.errors import UnavailableError
from penstock.models.sizing.budget import Claim, MemoryBudget
from penstock.models.sizing.estimate import HOST, ModelFacts, Place, estimate

_MIB = 1 << 20


def _facts(name: str, size: int, count: int = 1) -> ModelFacts:
    group = InstanceGroup(kind=InstanceKind.KIND_CPU, count=count)
    config = ModelConfig(name=name, backend="fil", instance_group=(group,))
    return ModelFacts(config, weights={"as stored": size})


def _planned(facts: ModelFacts) -> int:
    return estimate(facts, Place()).planned


def test_a_model_takes_its_estimate_with_headroom_until_it_is_released() -> None:
    budget = MemoryBudget(100)
    claim = budget.claim(_facts("a", 40))
    assert budget.used == claim.size == 46
    claim.release()
    claim.release()
    assert budget.used == 0


def test_a_model_that_does_not_fit_is_refused_with_what_helps() -> None:
    budget = MemoryBudget(100 * _MIB)
    budget.claim(_facts("small", 10 * _MIB))
    budget.claim(_facts("large", 50 * _MIB))
    with pytest.raises(UnavailableError) as refused:
        budget.claim(_facts("m", 40 * _MIB))
    assert refused.value.message == (
        "model 'm' needs 46.0 MiB of memory, and of the --memory-budget of 100 MiB there are"
        " 31.0 MiB left; what helps: unload 'large' (57.5 MiB), or a larger --memory-budget;"
        " 'penstock plan' shows the parts"
    )


def test_a_refusal_keeps_what_the_model_needs_with_its_other_versions() -> None:
    budget = MemoryBudget(100)
    budget.claim(_facts("other", 50))
    first, second = (replace(_facts("m", 20), version=version) for version in (1, 2))
    budget.claim(first)
    for _ in range(3):
        with pytest.raises(UnavailableError):
            budget.claim(second)
    assert budget.refused == {"m": {HOST: _planned(first) + _planned(second)}}


def test_the_smallest_model_whose_end_is_enough_is_named() -> None:
    budget = MemoryBudget(100 * _MIB)
    budget.claim(_facts("small", 10 * _MIB))
    budget.claim(_facts("large", 50 * _MIB))
    with pytest.raises(UnavailableError, match=r"unload 'small' \(11\.5 MiB\)"):
        budget.claim(_facts("m", 30 * _MIB))


def test_what_is_done_in_a_claim_gives_back_where_it_fails() -> None:
    budget = MemoryBudget(100)
    with pytest.raises(ValueError, match="broken"), budget.claim(_facts("a", 40)):
        raise ValueError("broken")
    assert budget.used == 0
    with budget.claim(_facts("a", 40)):
        pass
    assert budget.used == 46


def test_a_claim_grows_by_what_a_model_needs_more() -> None:
    few, many = _facts("a", 40), _facts("a", 80)
    budget = MemoryBudget(100)
    claim = budget.claim(few)
    assert budget.grown(claim, few) is None
    growth = budget.grown(claim, many)
    assert growth is not None
    claim.absorb(growth)
    growth.release()
    assert budget.used == claim.size == 92
    assert budget.surplus(claim, few) == {HOST: 46}
    freed = claim.split({HOST: 46})
    freed.release()
    assert budget.used == claim.size == 46


def test_a_claim_that_cannot_grow_stays(caplog: pytest.LogCaptureFixture) -> None:
    budget = MemoryBudget(100)
    with caplog.at_level(logging.INFO):
        claim = budget.claim(_facts("a", 40))
    assert "'a' version 1 takes 46 B of the memory budget, of which 54 B are left" in caplog.text
    with pytest.raises(UnavailableError, match="needs 69 B of memory"):
        budget.grown(claim, _facts("a", 100))
    assert budget.used == 46


@pytest.mark.parametrize(
    ("version", "policy", "helps"),
    [
        (1, None, "unload 'm' first, so that it is not there twice, or"),
        (2, None, "unload 'm' first, so that version 1 is not there beside it, or"),
        (2, VersionPolicy(all=AllVersions()), "a version_policy of 'm' with fewer versions, or"),
    ],
)
def test_a_reload_and_another_version_are_told_apart(
    version: int, policy: VersionPolicy | None, helps: str
) -> None:
    budget = MemoryBudget(100)
    budget.claim(_facts("m", 40))
    facts = _facts("m", 60)
    config = replace(facts.config, version_policy=policy)
    with pytest.raises(UnavailableError, match=f"what helps: {helps}"):
        budget.claim(replace(facts, config=config, version=version))


def test_a_model_that_grows_is_not_told_to_be_unloaded() -> None:
    budget = MemoryBudget(100)
    budget.claim(_facts("other", 20))
    claim = budget.claim(_facts("m", 40))
    with pytest.raises(UnavailableError) as refused:
        budget.grown(claim, _facts("m", 80))
    assert "needs 46 B of memory more than it has" in refused.value.message
    assert "unload 'other'" in refused.value.message
    assert "unload 'm'" not in refused.value.message


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 60), st.booleans()), max_size=30))
def test_never_more_is_used_than_there_is_and_nothing_is_lost(
    steps: list[tuple[str, int, bool]],
) -> None:
    budget, held = MemoryBudget(100), list[Claim]()
    for name, size, release in steps:
        if release and held:
            held.pop(size % len(held)).release()
            continue
        try:
            held.append(budget.claim(_facts(name, size)))
        except UnavailableError:
            assert budget.used + _planned(_facts(name, size)) > 100
        assert budget.used == sum(claim.size for claim in held) <= 100
    for claim in held:
        claim.release()
    assert budget.used == 0


def _on_gpu(name: str, size: int, *gpus: int) -> ModelFacts:
    group = InstanceGroup(kind=InstanceKind.KIND_GPU, count=1, gpus=gpus)
    config = ModelConfig(name=name, backend="onnxruntime", instance_group=(group,))
    return ModelFacts(config, weights={"as stored": size * _MIB})


def test_each_device_has_its_own_limit() -> None:
    limits = {"host": 100 * _MIB, "gpu0": 100 * _MIB, "gpu1": 20 * _MIB}
    budget = MemoryBudget(limits, (0, 1))
    budget.claim(_on_gpu("a", 50, 0))
    with pytest.raises(UnavailableError) as refused:
        budget.claim(_on_gpu("b", 50, 1))
    assert refused.value.message.startswith(
        "model 'b' needs 57.5 MiB of memory on gpu1, and of the --memory-budget of 20.0 MiB on gpu1"
        " there are 20.0 MiB left; what helps: "
    )
    with pytest.raises(UnavailableError, match=r"57\.5 MiB.*gpu0.*unload 'a' \(57\.5 MiB\)"):
        budget.claim(_on_gpu("c", 50, 0))
    assert budget.by_device()["a"]["gpu0"] == 50 * _MIB * 115 // 100
    assert budget.claim(_facts("d", 50 * _MIB)).sizes.keys() == {"host"}


def test_a_device_without_a_limit_takes_what_comes() -> None:
    budget = MemoryBudget({"gpu1": _MIB}, (0, 1))
    claim = budget.claim(_on_gpu("a", 500, 0))
    assert claim.size > 500 * _MIB
    assert budget.left() == {"gpu1": _MIB}
    claim.release()
    assert budget.by_device() == {}


def test_what_was_measured_counts_from_then_on(caplog: pytest.LogCaptureFixture) -> None:
    budget = MemoryBudget(100)
    claim = budget.claim(_facts("a", 40))
    budget.claim(_facts("b", 20))
    with caplog.at_level(logging.INFO):
        budget.correct(claim, {HOST: 80, "gpu0": 70})
    assert "'a' version 1 takes 92 B of host, more than the 46 B that were counted" in caplog.text
    assert budget.excess() == {"": 92 + 23 - 100}
    assert budget.lacking({HOST: 1}) == {"": 16}
    budget.correct(claim, {HOST: 20})
    assert (budget.used, budget.excess()) == (46, {})
    claim.release()
    budget.correct(claim, {HOST: 80})
    assert budget.used == 23


def test_what_was_measured_before_is_claimed_rather_than_the_estimate() -> None:
    seen: dict[str, dict[str, int]] = {"known": {HOST: 10}}
    budget = MemoryBudget(100, remembered=seen.get)
    facts = replace(_facts("a", 40), stamp="known")
    claim = budget.claim(facts)
    assert budget.used == budget.needed([facts]).total() == 12
    budget.adjust(claim, replace(_facts("a", 80), stamp="known"))
    assert budget.used == 12
    assert budget.needed([replace(facts, stamp="other")]).total() == 46
