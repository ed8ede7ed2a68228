"""`ConfigPart`, the base of configuration messages: descriptions and checks of their fields."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, cast, get_args, get_origin, get_type_hints

from penstock.core.errors import ConfigError
from penstock.core.tensor import DataType

NO_DATATYPE = "TYPE_INVALID"
"""Spelling in configurations of a missing datatype, which is `None` here."""


@dataclass(frozen=True, slots=True)
class Width:
    """The numbers that an integer field can hold."""

    name: str
    low: int
    high: int


Int32 = Annotated[int, Width("int32", -(1 << 31), (1 << 31) - 1)]
Int64 = Annotated[int, Width("int64", -(1 << 63), (1 << 63) - 1)]
UInt32 = Annotated[int, Width("uint32", 0, (1 << 32) - 1)]
UInt64 = Annotated[int, Width("uint64", 0, (1 << 64) - 1)]


class Label(Enum):
    """Cardinality of a field. An `OPTIONAL` one tells absent (`None`) from default."""

    SINGLE = auto()
    OPTIONAL = auto()
    REPEATED = auto()
    MAP = auto()


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a configuration message. `element` is the type of one value.

    `attribute` differs from `name` where the name is a keyword of Python, such as `global`.
    `names` are those of an enumeration, each at the place of its number.
    """

    name: str
    attribute: str
    element: type[Any]
    label: Label
    width: Width | None = None
    key: type[Any] | None = None
    default: Any = None
    names: tuple[str, ...] = ()

    @property
    def is_message(self) -> bool:
        """Whether values are messages themselves."""
        return issubclass(self.element, ConfigPart)

    def values(self, part: ConfigPart) -> Iterator[Any]:
        """The values that `part` holds in this field, without the keys of a map."""
        value = getattr(part, self.attribute)
        if self.label is Label.REPEATED:
            yield from value
        elif self.label is Label.MAP:
            yield from value.values()
        elif value is not None:
            yield value

    def accepts(self, value: Any) -> bool:
        """Whether `value` is of the field's type."""
        if value is None:
            return self.label is Label.OPTIONAL or self.element is DataType
        if self.label is Label.REPEATED:
            return isinstance(value, tuple) and all(map(self._fits, value))
        if self.label is Label.MAP:
            keys = self.key or str
            return isinstance(value, Mapping) and all(
                isinstance(key, keys) and self._fits(one) for key, one in value.items()
            )
        return self._fits(value)

    def mismatch(self, value: Any) -> str:
        """The problem of a value that is not accepted: of the field or of one of its elements."""
        if self.label is Label.REPEATED and isinstance(value, tuple):
            number = next(number for number, one in enumerate(value) if not self._fits(one))
            return f"{self.name}[{number}] must be {self._one}, not {_shown(value[number])}"
        return f"{self.name} must be {self.expected}, not {_shown(value)}"

    @property
    def expected(self) -> str:
        """The field's type in words, for errors."""
        name = self.element.__name__
        if self.label is Label.REPEATED:
            return f"a tuple of {name}"
        if self.label is Label.MAP:
            return f"a mapping of {(self.key or str).__name__} to {name}"
        return self._one

    @property
    def _one(self) -> str:
        """The type of one value in words."""
        text = _with_article(self.element.__name__)
        if issubclass(self.element, Enum):
            text += f", such as {self.element.__name__}.{next(iter(self.element)).name}"
        return text

    def _fits(self, value: Any) -> bool:
        """Whether one value is of the element's type; numbers may be written as integers."""
        if isinstance(value, bool):
            return self.element is bool
        return isinstance(value, (float, int) if self.element is float else self.element)


_LONGEST_VALUE = 60
"""Characters of a value in an error; of a longer one the error names the type."""


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else _with_article(type(value).__name__)


def _with_article(name: str) -> str:
    return f"{'an' if name[0] in 'AEIOaeio' else 'a'} {name}"


class ConfigPart:
    """Base of every message of a configuration; subclasses are frozen dataclasses.

    `ONEOFS` lists the groups of fields of which at most one may be set, `RECENT` fields that
    release 2.51 of the real server does not know: they are printed only where they say something.
    """

    __slots__ = ()
    ONEOFS: ClassVar[tuple[tuple[str, ...], ...]] = ()
    RECENT: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        for field in fields_of(type(self)):
            _check_type(field, self)
            _check_width(field, self)
        for names in self.ONEOFS:
            given = [name for name in names if getattr(self, name) is not None]
            if len(given) > 1:
                raise ConfigError(f"{' and '.join(given)}: only one of them may be given")


def _check_type(field: Field, part: ConfigPart) -> None:
    value = getattr(part, field.attribute)
    if field.accepts(value):
        return
    name = getattr(part, "name", "")
    where = f"{type(part).__name__} '{name}'" if name else type(part).__name__
    raise ConfigError(f"{where}: {field.mismatch(value)}")


def _check_width(field: Field, part: ConfigPart) -> None:
    width = field.width
    if width is None:
        return
    for value in field.values(part):
        if not width.low <= value <= width.high:
            raise ConfigError(f"{field.name}: {value} is out of the range of {width.name}")


def fields_of(cls: type[ConfigPart]) -> tuple[Field, ...]:
    """The fields of a message, in the order in which they are printed."""
    return _fields(cast(Any, cls))


@cache
def _fields(cls: type[ConfigPart]) -> tuple[Field, ...]:
    hints = get_type_hints(cls, include_extras=True)
    return tuple(
        _field(field, hints[field.name])
        for field in dataclasses.fields(cast(Any, cls))
        if field.init
    )


def _field(field: dataclasses.Field[Any], hint: Any) -> Field:
    label, key, inner = _unwrapped(hint)
    width = None
    if get_origin(inner) is Annotated:
        inner, width = get_args(inner)
    name, default = field.name.rstrip("_"), _default(field)
    return Field(name, field.name, inner, label, width, key, default, _names(inner))


def _unwrapped(hint: Any) -> tuple[Label, type[Any] | None, Any]:
    """The label, the key type of a map, and the type of one value."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is tuple:
        return Label.REPEATED, None, args[0]
    if origin is Mapping:
        return Label.MAP, _plain(args[0]), args[1]
    if origin is UnionType:
        (inner,) = (arg for arg in args if arg is not NoneType)
        # `None` is how "no datatype", the default of the enumeration, is spelled.
        return (Label.SINGLE if inner is DataType else Label.OPTIONAL), None, inner
    return Label.SINGLE, None, hint


def _plain(hint: Any) -> type[Any]:
    return cast("type[Any]", get_args(hint)[0] if get_origin(hint) is Annotated else hint)


def _names(enum: type[Any]) -> tuple[str, ...]:
    if enum is DataType:
        valid = (member for member in DataType if member is not DataType.INVALID)
        return NO_DATATYPE, *(member.config_name for member in valid)
    return tuple(member.value for member in enum) if issubclass(enum, StrEnum) else ()


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default
