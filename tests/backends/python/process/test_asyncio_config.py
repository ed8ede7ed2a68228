"""Discovery of a model class, and its configuration merged with a `config.pbtxt`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import ModuleType
from typing import Any

import pytest

from penstock.core.config import ModelConfig as CoreConfig
from penstock.core.config import config_from_json, config_to_json
from penstock.core.errors import ConfigError, ModelLoadError
from penstock.model import (
    DataType,
    DynamicBatching,
    Input,
    InstanceGroup,
    Model,
    ModelConfig,
    Output,
    Request,
    Response,
)
from penstock_backends.python.process.asyncio_config import completed_config, find_model


class Plain(Model):
    config = ModelConfig(
        max_batch_size=8,
        input=(
            Input("IN", DataType.FP32, dims=(4,)),
            Input("OPT", DataType.BYTES, dims=(1,), optional=True),
        ),
        output=(Output("OUT", DataType.FP32, dims=(4,)),),
        dynamic_batching=DynamicBatching(max_queue_delay_microseconds=500),
        instance_group=(InstanceGroup(count=2),),
    )

    async def infer(self, request: Request) -> Response:
        return Response()


class Stream(Model):
    async def infer(self, request: Request) -> AsyncIterator[Response]:
        yield Response()


def completed(cls: type[Model], **given: Any) -> CoreConfig:
    """The configuration of the class merged with that of a file, `given`."""
    return config_from_json(completed_config(cls, {"name": "m", **given}))


def module(**contents: object) -> ModuleType:
    """A model.py with these names; classes look as if they were defined in it."""
    made = ModuleType("model")
    made.__file__ = "/models/m/1/model.py"
    made.__dict__.update(contents)
    return made


def own(name: str, *bases: type[Model]) -> type[Model]:
    return type(name, bases or (Model,), {"__module__": "model"})


# -- finding -------------------------------------------------------------------------------------


def test_only_model_of_the_file_is_found() -> None:
    cls = own("Mine")
    assert find_model(module(Model=Model, Mine=cls, other=3)) is cls


def test_bases_are_no_models() -> None:
    base = own("Base")
    leaf = own("Leaf", base)
    assert find_model(module(Base=base, Leaf=leaf, Imported=Plain)) is leaf


def test_imported_model_serves_where_there_is_no_other() -> None:
    assert find_model(module(Plain=Plain)) is Plain


def test_file_without_a_model_has_none() -> None:
    assert find_model(module(Model=Model)) is None


def test_two_models_are_one_too_many() -> None:
    with pytest.raises(ModelLoadError, match="has more than one model: A, B"):
        find_model(module(A=own("A"), B=own("B")))


# -- configuration -------------------------------------------------------------------------------


def test_class_needs_no_file() -> None:
    config = completed(Plain, backend="python")
    assert (config.name, config.backend, config.max_batch_size) == ("m", "python", 8)
    assert (config.input, config.output) == (Plain.config.input, Plain.config.output)
    assert config.dynamic_batching == DynamicBatching(max_queue_delay_microseconds=500)
    assert config.instance_group == (InstanceGroup(count=2),)
    assert not config.decoupled


def test_fields_at_their_defaults_count_as_not_given() -> None:
    printed = config_to_json(ModelConfig(name="m"), with_defaults=True)
    config = config_from_json(completed_config(Plain, printed))
    assert config.instance_group == (InstanceGroup(count=2),)
    assert config.max_batch_size == 8


def test_generator_makes_the_model_decoupled() -> None:
    assert completed(Stream).decoupled


def test_file_goes_above_the_class_where_it_may() -> None:
    config = completed(Plain, instance_group=[{"count": 5}], max_batch_size=4)
    assert config.instance_group == (InstanceGroup(count=5),)
    assert config.max_batch_size == 4


def test_files_scheduler_replaces_that_of_the_class() -> None:
    config = completed(Plain, sequence_batching={"direct": {}})
    assert config.dynamic_batching is None
    assert config.sequence_batching is not None


def test_properties_that_only_the_class_knows_are_added() -> None:
    config = completed(Plain, input=[{"name": "OPT", "data_type": "TYPE_STRING", "dims": [1]}])
    assert config.inputs_by_name["OPT"].optional
    assert "IN" in config.inputs_by_name


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            {"input": [{"name": "IN", "data_type": "TYPE_INT32", "dims": [4]}]},
            "configuration expects datatype TYPE_INT32 for input 'IN', model provides TYPE_FP32",
        ),
        (
            {"output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [9]}]},
            r"the model expects dims \[4\] but the model configuration specifies dims \[9\]",
        ),
        ({"max_batch_size": 16}, "configuration specified max_batch_size 16"),
        ({"model_transaction_policy": {"decoupled": True}}, "already set to 'True'"),
    ],
)
def test_file_cannot_contradict_the_class(given: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        completed(Plain, **given)


def test_a_configuration_of_another_kind_is_refused_by_name() -> None:
    class Mine(Model):
        config = {"max_batch_size": 8}  # type: ignore[assignment]  # noqa: RUF012

    with pytest.raises(ConfigError, match=r"'Mine.config' must be a ModelConfig, not dict"):
        completed_config(Mine, {})
