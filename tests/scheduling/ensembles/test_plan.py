"""The dataflow graph of an ensemble, and its subgraphs."""

from __future__ import annotations

import pytest

from penstock.core.tensor import DataType, Tensor
from penstock.scheduling.ensembles.plan import Rebatch
from scheduling.ensembles.fake_models import plan, step

DIAMOND = plan(
    [step("d", "B C", "D"), step("b", "A", "B"), step("c", "A", "C"), step("e", "X", "E")], "D E"
)


def test_every_output_is_in_demand_unless_some_are_named() -> None:
    subgraph = DIAMOND.subgraph(())
    assert [link.name for link in subgraph.outputs] == ["D", "E"]
    assert subgraph.consumers == {"A": (1, 2), "B": (0,), "C": (0,), "X": (3,)}


@pytest.mark.contract("E-18")
def test_steps_that_no_named_output_needs_do_not_run() -> None:
    subgraph = DIAMOND.subgraph(("E",))
    assert subgraph.consumers == {"X": (3,)}
    assert [link.name for link in subgraph.outputs] == ["E"]


def test_uses_count_steps_and_the_response() -> None:
    chain = plan([step("a", "A", "B"), step("b", "B", "C"), step("c", "A B", "D")], "B C D")
    assert chain.subgraph(()).uses == {"A": 2, "B": 3, "C": 1, "D": 1}


def test_a_step_waits_for_each_tensor_once() -> None:
    assert DIAMOND.subgraph(()).missing == (2, 1, 1, 1)


def test_a_subgraph_is_worked_out_once_whatever_the_order_of_names() -> None:
    assert DIAMOND.subgraph(("E", "D")) is DIAMOND.subgraph(("D", "E", "D"))


def test_subgraphs_are_kept_within_bounds() -> None:
    """A client may name any set of outputs."""
    names = " ".join(f"O{n}" for n in range(200))
    wide = plan([step("a", "A", names)], names)
    for n in range(200):
        wide.subgraph((f"O{n}",))
    assert len(wide._subgraphs) <= 64


@pytest.mark.contract("E-05")
@pytest.mark.parametrize(
    ("dims", "batched", "shape", "result"),
    [
        ((16,), True, (16,), (1, 16)),
        ((-1,), True, (7,), (1, 7)),
        ((16,), True, (3, 16), (3, 16)),  # in batches already
        ((16,), False, (1, 16), (16,)),
        ((16,), False, (2, 16), (2, 16)),  # more than one row stays, and is refused by the model
        ((-1, 16), False, (1, 16), (1, 16)),  # wanted with the batch dimension
        ((), True, (), (1,)),
        ((), False, (1,), ()),
    ],
)
def test_the_batch_dimension_comes_and_goes_between_models(
    dims: tuple[int, ...], batched: bool, shape: tuple[int, ...], result: tuple[int, ...]
) -> None:
    given = Tensor(DataType.INT8, shape, b"")
    assert Rebatch(dims, batched)(given).shape == result
