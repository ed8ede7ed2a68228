"""Sums of models, the cards that they fit on, and the examples that are often cited."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from penstock.core.config import InstanceGroup, InstanceKind, ModelConfig
from penstock.models.sizing.cards import find_card
from penstock.models.sizing.estimate import (
    ASSUMED,
    HOST,
    Engine,
    ModelFacts,
    Place,
    server_bytes,
    with_headroom,
)
from penstock.models.sizing.kv_cache import Attention, EngineSettings
from penstock.models.sizing.plan import Plan, changes, fewest, fitting_cards, suggestions

_GB = 10**9


def _assumed(name: str, size: float, dtype: str = "FP8") -> ModelFacts:
    """A model of which nothing but the size, in GB, is known."""
    group = InstanceGroup(kind=InstanceKind.KIND_MODEL, count=1)
    config = ModelConfig(name=name, backend=ASSUMED, instance_group=(group,))
    return ModelFacts(config, weights={dtype: int(size * _GB)})


def _tensors(backend: str, count: int = 1, **weights: int) -> ModelFacts:
    group = InstanceGroup(kind=InstanceKind.KIND_AUTO, count=count)
    config = ModelConfig(name=backend, backend=backend, instance_group=(group,))
    return ModelFacts(config, weights=weights)


def _language(weights: Mapping[str, int], **settings: float) -> ModelFacts:
    group = InstanceGroup(kind=InstanceKind.KIND_MODEL, count=1)
    config = ModelConfig(name="llm", backend="vllm", instance_group=(group,))
    attention = Attention(numbers=65536, vectors=512, heads=8, context=8192)
    return ModelFacts(config, 1, weights, attention, EngineSettings(**settings))  # type: ignore[arg-type]


@pytest.mark.contract("SD-10")
def test_the_sum_of_all_models_has_15_percent_of_headroom() -> None:
    """S114, S123: total = sum of what is resident x 1.15."""
    assert with_headroom(100 * _GB) == 115 * _GB
    plan = Plan.of([_assumed("a", 1), _assumed("b", 2)], Place((0,)))
    assert plan.needed("gpu0") == 3 * _GB
    assert plan.planned("gpu0") == with_headroom(1 * _GB) + with_headroom(2 * _GB)


@pytest.mark.contract("SD-10")
def test_a_reranker_clip_and_an_8b_model_fit_an_l40s() -> None:
    """S118: 1 GB + 0.6 GB + 8 GB, 11.04 GB with headroom."""
    models = [_assumed("bert", 1), _assumed("clip", 0.6), _assumed("llama-8b", 8)]
    plan = Plan.of(models, Place((0,)))
    assert plan.planned("gpu0") == 11.04 * _GB
    assert plan.fits(find_card("l40s"))


def test_a_model_above_40_gb_wants_a_card_of_80_gb() -> None:
    """S116; where it is split, its parts are what counts."""
    large, small = _assumed("large", 40.1), _assumed("small", 39.9)
    assert not Plan.of([large], Place((0,))).fits(find_card("l40s"))
    assert Plan.of([large], Place((0,))).fits(find_card("h100"))
    assert Plan.of([small], Place((0,))).fits(find_card("l40s"))
    assert fewest([large], find_card("l40s")) == 2


@pytest.mark.contract("SD-10")
@pytest.mark.parametrize(
    ("models", "cited", "weights", "card"),
    [
        # 70 billion parameters at a byte each are 70 GB of weights; 40 GB are those of 4 bits.
        ([("70B", 70.0)], 40, 70, "h100"),
        # FP16: two bytes for each of 8 and 0.57 billion.
        ([("8B", 16.0), ("BGE-M3", 1.1)], 18, 17.1, "l40s"),
        ([("11B VLM", 21.3), ("CLIP", 0.6)], 30, 21.9, "a100"),
        # The three rows above are 88 GB as cited, and 109 GB of weights, not 55.
        (
            [("70B", 70.0), ("8B", 16.0), ("BGE-M3", 1.1), ("11B VLM", 21.3), ("CLIP", 0.6)],
            55,
            109,
            "h200",
        ),
    ],
)
def test_rows_of_the_table_that_is_often_cited(
    models: list[tuple[str, float]], cited: float, weights: float, card: str
) -> None:
    """S117: the card, and what its figures leave out."""
    facts = [_assumed(name, size) for name, size in models]
    plan = Plan.of(facts, Place((0,)))
    assert plan.needed("gpu0") == pytest.approx(weights * _GB)
    assert plan.fits(find_card(card))
    adds_up = weights <= cited
    assert adds_up == (cited in (18, 30))


def test_the_servers_process_and_its_engines_are_counted_once() -> None:
    facts = [_tensors("onnxruntime"), _tensors("onnxruntime"), _tensors("fil")]
    plan = Plan.of(facts, Place())
    engines = Engine.of("onnxruntime").process + Engine.of("fil").process
    assert plan.server[HOST].runtime == server_bytes() + engines
    on_gpu = Plan.of(facts, Place((0,)))
    assert on_gpu.server["gpu0"].runtime == Engine.of("onnxruntime").context


def test_a_plan_for_the_host_is_held_against_its_memory() -> None:
    plan = Plan.of([_tensors("onnxruntime", INT8=_GB)], Place())
    assert plan.excess(2 * _GB) == {}
    assert plan.excess(_GB) == {HOST: plan.planned(HOST) - _GB}


def test_a_model_for_more_gpus_than_there_are_does_not_fit() -> None:
    facts = _language({"FP8": _GB}, parallel=4, sequences=1)
    assert not Plan.of([facts], Place((0, 1))).fits(find_card("h100"))
    assert Plan.of([facts], Place((0, 1, 2, 3))).fits(find_card("h100"))


def test_cards_are_named_with_the_fewest_of_them() -> None:
    found = {card.key: number for card, number in fitting_cards([_assumed("70B", 70)])}
    assert found["h100"] == 1
    assert found["l40s"] == 2
    assert found["l4"] == 4
    assert found["t4"] == 8
    assert fitting_cards([_assumed("huge", 10_000)]) == []


def test_models_that_cannot_be_split_do_not_become_smaller_with_more_cards() -> None:
    assert fewest([_tensors("onnxruntime", FP32=30 * _GB)], find_card("l4")) == 0


# -- what would help ---------------------------------------------------------------------------


def test_fewer_instances_and_half_the_width_are_suggested() -> None:
    facts = _tensors("pytorch", 4, FP32=_GB)
    found = {change.what: change.saved for change in changes(facts, Place((0,)), _GB)}
    each = _GB + Engine.of("pytorch").context
    assert found["1 instead of 4 instances"] == with_headroom(4 * each) - with_headroom(each)
    assert found["weights in FP16 instead of FP32"] == pytest.approx(2 * 1.15 * _GB, abs=9)


def test_a_cache_is_made_as_small_as_it_must_be() -> None:
    facts = _language({"FP8": _GB}, sequences=64, length=8192)
    sequence = 65536 * 2 * 8192
    (found,) = (c for c in changes(facts, Place((0,)), 40 * sequence) if "cache" in c.what)
    assert found.what == "a KV cache of 16 sequences"
    assert found.saved == pytest.approx(48 * sequence * 1.15, abs=9)


def test_a_cache_of_tokens_keeps_room_for_one_sequence() -> None:
    facts = _language({"FP8": _GB}, tokens=32768, length=8192)
    (found,) = (c for c in changes(facts, Place((0,)), 1 << 60) if "cache" in c.what)
    assert found.what == "a KV cache of 8,192 tokens"


@pytest.mark.contract("VL-22")
def test_an_engine_that_takes_a_whole_card_may_take_less_of_it() -> None:
    facts = _language({"FP8": 8 * _GB}, sequences=1)
    card = find_card("h100")
    (found,) = (c for c in changes(facts, Place((0,), card.usable), _GB) if "util" in c.what)
    assert found.what == "gpu_memory_utilization of 0.15"


def test_what_saves_most_comes_first() -> None:
    small, large = _tensors("pytorch", 2, FP32=_GB), _tensors("onnxruntime", 2, FP32=9 * _GB)
    found = suggestions([small, large], Place((0,)), _GB)
    assert [change.saved for change in found] == sorted((c.saved for c in found), reverse=True)
    assert found[0].facts.config.backend == "onnxruntime"
