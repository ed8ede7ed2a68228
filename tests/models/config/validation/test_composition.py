"""Whether the models of an ensemble fit together; the texts were asked of the real server."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core.config import ModelConfig, config_from_json
from penstock.core.errors import ConfigError
from penstock.models.config.defaults import with_defaults
from penstock.models.config.validation import validate_polled
from penstock.models.config.validation.composition import composed

Tensor = tuple[str, str, list[int]]


def _io(*tensors: Tensor, **more: Any) -> list[dict[str, Any]]:
    return [{"name": n, "data_type": f"TYPE_{t}", "dims": d} | more for n, t, d in tensors]


def _model(
    name: str,
    inputs: list[dict[str, Any]],
    outputs: list[dict[str, Any]],
    *,
    max_batch_size: int = 0,
    **more: Any,
) -> ModelConfig:
    fields = {"name": name, "input": inputs, "output": outputs, "max_batch_size": max_batch_size}
    return config_from_json(fields | more)


def _f(name: str) -> Tensor:
    return (name, "FP32", [-1])


PARTS = {
    model.name: model
    for model in (
        _model("same", _io(_f("I")), _io(_f("O"))),
        _model("batch", _io(("I", "FP32", [16])), _io(("O", "FP32", [16])), max_batch_size=8),
        _model("fixed", _io(("I", "FP32", [16])), _io(("O", "FP32", [16]))),
        _model("pair", _io(_f("I"), _f("J")), _io(_f("O"), _f("P"))),
        _model("choice", _io(_f("I")) + _io(_f("J"), optional=True), _io(_f("O"))),
        _model(
            "many",
            _io(_f("I")),
            _io(_f("O"), _f("P")),
            model_transaction_policy={"decoupled": True},
        ),
        _model("steady", _io(_f("I")), _io(_f("O")), sequence_batching={"direct": {}}),
    )
}


def _step(model: str, inputs: str, outputs: str) -> dict[str, Any]:
    """A step from `I=X J=Y`, the model's name first."""
    maps = [dict(pair.split("=") for pair in text.split()) for text in (inputs, outputs)]
    return {"model_name": model, "model_version": -1, "input_map": maps[0], "output_map": maps[1]}


def _ensemble(
    steps: list[dict[str, Any]],
    inputs: str | list[Tensor] = "X",
    outputs: str | list[Tensor] = "Y",
    **more: Any,
) -> ModelConfig:
    given = [_f(n) for n in inputs.split()] if isinstance(inputs, str) else inputs
    made = [_f(n) for n in outputs.split()] if isinstance(outputs, str) else outputs
    scheduling = {"step": steps}
    ensemble: dict[str, Any] = {"platform": "ensemble", "ensemble_scheduling": scheduling}
    return _model("e", _io(*given), _io(*made), **ensemble, **more)


def _problem(config: ModelConfig) -> str:
    with pytest.raises(ConfigError) as refused:
        composed(config, PARTS)
    return refused.value.message


def _fits(config: ModelConfig) -> bool:
    """Whether it fits; and whether it is decoupled then."""
    return composed(config, PARTS).decoupled


# -- by itself ------------------------------------------------------------------------------------


@pytest.mark.contract("E-03")
@pytest.mark.parametrize(
    ("config", "text"),
    [
        (
            _ensemble([_step("same", "I=X", "O=Y"), _step("same", "I=X", "O=Y")]),
            "ensemble tensor 'Y' can appear in an output map only once for ensemble 'e' step 1",
        ),
        (
            _ensemble([_step("pair", "I=X J=X", "O=Y P=Y")]),
            "ensemble tensor 'Y' can appear in an output map only once for ensemble 'e' step 0",
        ),
        (
            _ensemble([_step("same", "I=X", "O=Y"), _step("same", "I=X", "O=Z")]),
            "ensemble tensor 'Z' is unused in ensemble 'e'",
        ),
        (
            _ensemble([_step("same", "I=M", "O=Y"), _step("same", "I=X", "O=Q")]),
            "output 'Y' for ensemble 'e' is not written: at least one of its depending tensors,"
            " 'M', is not connected",
        ),
        (
            _ensemble([_step("pair", "I=X J=B", "O=A P=Y"), _step("same", "I=A", "O=B")]),
            "output 'Y' for ensemble 'e' is not written: at least one of its depending tensors,"
            " 'A', is not connected",
        ),
        (
            _ensemble([_step("same", "I=X", "O=Y")], "X X2"),
            "ensemble input 'X2' for ensemble e' is not used",
        ),
        (
            _ensemble([_step("same", "I=X", "O=Y")], "X", "Y Z"),
            "ensemble output 'Z' for ensemble e' is not used",
        ),
        (
            _ensemble([_step("", "I=X", "O=Y")]),
            "must specify 'model_name' in step 0 of ensemble 'e'",
        ),
        (
            _ensemble([_step("same", "", "O=Y")]),
            "must specify 'input_map' in step 0 of ensemble 'e'",
        ),
        (
            _ensemble([_step("same", "I=X", "")]),
            "must specify 'output_map' in step 0 of ensemble 'e'",
        ),
    ],
)
def test_tensors_that_hang_loose_are_refused_when_the_file_is_read(
    config: ModelConfig, text: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        validate_polled(with_defaults(config))
    assert refused.value.message == text


# -- with its models ------------------------------------------------------------------------------


@pytest.mark.contract("E-03")
@pytest.mark.parametrize(
    ("config", "text"),
    [
        (
            _ensemble([_step("same", "NOPE=X", "O=Y")]),
            "in ensemble e, ensemble tensor X is mapping to non-existing input NOPE in model same",
        ),
        (
            _ensemble([_step("same", "I=X", "NOPE=Y")]),
            "in ensemble e, ensemble tensor Y is mapped from non-existing output NOPE in model"
            " same",
        ),
        (
            _ensemble([_step("pair", "I=X", "O=Y")]),
            "in ensemble e, input J in model pair is not mapped to any ensemble tensors",
        ),
        (
            _ensemble([_step("same", "I=X", "O=Y")], [("X", "INT32", [-1])]),
            "in ensemble e, ensemble tensor X: inconsistent data type: TYPE_INT32 is inferred from"
            " model e while TYPE_FP32 is inferred from model same",
        ),
        (
            _ensemble([_step("fixed", "I=X", "O=Y")], [("X", "FP32", [17])]),
            "in ensemble e, ensemble tensor X: inconsistent shape: [17] is inferred from model e"
            " while [16] is inferred from model fixed",
        ),
        (
            _ensemble([_step("batch", "I=X", "O=Y")], [("X", "FP32", [17])], max_batch_size=8),
            "in ensemble e, ensemble tensor X: inconsistent shape: [-1,17] is inferred from model"
            " e while [-1,16] is inferred from model batch",
        ),
    ],
)
def test_models_have_to_agree_about_tensors(config: ModelConfig, text: str) -> None:
    assert _problem(config) == text


def test_a_variable_dimension_agrees_with_any_size() -> None:
    steps = [_step("fixed", "I=X", "O=M"), _step("same", "I=M", "O=Y")]
    assert not _fits(_ensemble(steps, "X", "Y M"))


@pytest.mark.contract("E-04")
def test_an_ensemble_batches_no_more_than_its_models() -> None:
    config = _ensemble([_step("batch", "I=X", "O=Y")], max_batch_size=64)
    assert _problem(config) == (
        "ensemble e allows maximum batch size 64, but it contains model batch which only allows"
        " maximum batch size to be 8"
    )


@pytest.mark.contract("E-05")
def test_models_that_batch_and_others_fit_where_the_full_shapes_do() -> None:
    rows: list[Tensor] = [("X", "FP32", [-1, 16])]
    made: list[Tensor] = [("Y", "FP32", [-1, 16])]
    assert not _fits(_ensemble([_step("batch", "I=X", "O=Y")], rows, made))
    assert not _fits(_ensemble([_step("fixed", "I=X", "O=Y")], max_batch_size=4))


@pytest.mark.contract("E-08")
def test_an_optional_input_need_not_be_mapped() -> None:
    assert not _fits(_ensemble([_step("choice", "I=X", "O=Y")]))


# -- decoupled ------------------------------------------------------------------------------------


@pytest.mark.contract("E-10")
def test_an_ensemble_is_decoupled_when_one_of_its_models_is() -> None:
    assert _fits(_ensemble([_step("many", "I=X", "O=M"), _step("same", "I=M", "O=Y")]))


def test_what_the_file_says_about_that_does_not_count() -> None:
    policy = {"decoupled": True}
    config = _ensemble([_step("same", "I=X", "O=Y")], model_transaction_policy=policy)
    assert not _fits(config)


@pytest.mark.contract("E-10")
@pytest.mark.parametrize(
    ("steps", "outputs", "model"),
    [
        ([_step("many", "I=X", "O=M"), _step("pair", "I=M J=X", "O=Y")], "Y", "e"),
        ([_step("many", "I=X", "O=Y"), _step("many", "I=X", "O=Z")], "Y Z", "e"),
        ([_step("many", "I=X", "O=Y"), _step("same", "I=X", "O=Z")], "Y Z", "e"),
        (
            [
                _step("many", "I=X", "O=A"),
                _step("many", "I=A", "O=B"),
                _step("pair", "I=A J=B", "O=C"),
                _step("same", "I=C", "O=Y"),
            ],
            "Y",
            "pair",
        ),
    ],
)
def test_what_comes_of_different_decoupled_steps_cannot_be_joined(
    steps: list[dict[str, Any]], outputs: str, model: str
) -> None:
    assert _problem(_ensemble(steps, "X", outputs)) == (
        f"in ensemble e, step of model '{model}' receives inputs originated from different"
        " decoupled models"
    )


def test_what_comes_of_one_decoupled_step_can() -> None:
    steps = [_step("many", "I=X", "O=A P=B"), _step("pair", "I=A J=B", "O=Y")]
    assert _fits(_ensemble(steps))


# -- the response cache ---------------------------------------------------------------------------


@pytest.mark.contract("E-14")
def test_an_ensemble_with_sequences_cannot_be_cached() -> None:
    config = _ensemble([_step("steady", "I=X", "O=Y")], response_cache={"enable": True})
    assert _problem(config) == (
        "Response Cache does not currently support model e with sequence batching scheduler."
        " Please disable the response cache."
    )
