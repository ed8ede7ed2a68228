"""Full names of models, with which `--model-namespacing` tells those of one name apart (R-09).

`NAMESPACE::NAME`; the namespace is the model repository: its address, or its path from the root. So
it has a slash, which no name of a model has.
"""

from __future__ import annotations

_BETWEEN = "::"


def full_name(namespace: str, name: str) -> str:
    """The full name of a model; its name, where the namespace is empty."""
    return f"{namespace}{_BETWEEN}{name}" if namespace else name


def split_name(name: str) -> tuple[str, str]:
    """Namespace and name of a model; the first is empty where the name is no full one."""
    namespace, _, short = name.rpartition(_BETWEEN)
    return (namespace, short) if "/" in namespace else ("", name)


def ambiguous_name(name: str, count: int) -> str:
    """Why a name that so many models have means none of them; Triton's words."""
    return (
        f"There are {count} identifiers of model '{name}' in global map, model namespace must be"
        " provided to resolve ambiguity."
    )
