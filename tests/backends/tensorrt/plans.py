"""Plans for the stand-in for TensorRT."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

VERSION = "11.4.0.106"


def tensor(name: str, *dims: int, dtype: str = "FLOAT", **more: Any) -> dict[str, Any]:
    """An input, or with `input=False` an output."""
    return {"name": name, "dims": dims, "dtype": dtype, "input": True, **more}


def write(
    path: Path,
    network: str,
    tensors: Sequence[Mapping[str, Any]],
    *profiles: Mapping[str, Sequence[Sequence[int]]],
    **more: Any,
) -> Path:
    """A plan; a profile has the least, the best and the greatest shape of each input."""
    plan = {"version": VERSION, "network": network, "tensors": tensors, "profiles": profiles}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"stand-in plan\n{json.dumps(plan | more)}")
    return path


def write_double(path: Path, *profiles: Mapping[str, Sequence[Sequence[int]]], **more: Any) -> Path:
    """`y` is twice `x`, for 1 to 8 rows of 4, or as the profiles say."""
    profiles = profiles or ({"x": [[1, 4], [4, 4], [8, 4]]},)
    width = 4 if all(shape["x"][0][1] == shape["x"][2][1] == 4 for shape in profiles) else -1
    dtype = more.pop("dtype", "FLOAT")
    tensors = [
        tensor("x", -1, width, dtype=dtype),
        tensor("y", -1, width, dtype=dtype, input=False),
    ]
    return write(path, "double", tensors, *profiles, **more)
