"""Configurations at random, for properties that hold for all of them."""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import strategies as st

from penstock.core.config import ConfigPart, Field, Label, ModelConfig, fields_of
from penstock.core.tensor import DataType

_SCALARS: dict[type[Any], st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    str: st.text(max_size=4),
    # Few digits, so that they survive fields of 32 bits.
    float: st.integers(-9999, 9999).map(lambda number: number / 100),
}


def model_configs() -> st.SearchStrategy[ModelConfig]:
    """Any configuration that can be written down, sensible or not."""
    return _part(ModelConfig)


@cache
def _part(cls: Any) -> st.SearchStrategy[Any]:
    optional = {field.attribute: _field(field) for field in fields_of(cls)}
    kept = st.fixed_dictionaries({}, optional=optional)
    return kept.map(lambda given: cls(**_with_one_of_each(cls, given)))


def _with_one_of_each(cls: type[ConfigPart], given: dict[str, Any]) -> dict[str, Any]:
    for names in cls.ONEOFS:
        for extra in [name for name in names if name in given][1:]:
            del given[extra]
    return given


def _field(field: Field) -> st.SearchStrategy[Any]:
    one = _single(field)
    if field.label is Label.REPEATED:
        return st.lists(one, max_size=2).map(tuple)
    if field.label is Label.MAP:
        keys = st.integers(0, 1 << 63) if field.key is int else st.text(max_size=4)
        return st.dictionaries(keys, one, max_size=2)
    return one


def _single(field: Field) -> st.SearchStrategy[Any]:
    element: Any = field.element
    if field.is_message:
        return _part(element)
    if element is DataType:
        valid = [datatype for datatype in DataType if datatype is not DataType.INVALID]
        absent = [None] if field.label is Label.SINGLE else []
        return st.sampled_from([*absent, *valid])
    if field.width is not None:
        return st.integers(field.width.low, field.width.high)
    return st.sampled_from(list(element)) if field.names else _SCALARS[element]
