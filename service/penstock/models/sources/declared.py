"""Declarations in files of forests and of PyTorch, read without their engines."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from os import SEEK_END
from pathlib import Path
from typing import Any, NamedTuple

from penstock.models.sources.draft import one_line, quoted
from penstock.system.archives import DAMAGES, ArchiveError, zip_members

_HEAD = 1 << 16
"""Bytes at the beginning or the end of a forest where its objective stands."""

_CLASSES = re.compile(r"binary(:logistic|:logitraw|:hinge)?|multi:.*|multiclass(ova)?")
_VALUES = re.compile(
    r"(reg|count|survival|rank):.*"
    r"|regression.*|huber|fair|poisson|quantile|mape|gamma|tweedie|lambdarank|rank_xendcg"
)
"""Objectives of XGBoost and LightGBM, by what their trees add up to."""

_UBJ_NAME = re.compile(rb"\x04nameSL\0{7}(.)", re.DOTALL)
"""In UBJSON: a key of four bytes, and a text with its length in eight."""

_TREELITE_TASK = 26
"""Where a checkpoint of treelite's version 4 has its task, behind numbers of fixed widths."""
_TREELITE_TASKS = {
    0: ("true", "kBinaryClf"),
    1: ("false", "kRegressor"),
    2: ("true", "kMultiClf"),
    3: ("false", "kLearningToRank"),
    4: ("false", "kIsolationForest"),
}

_PROGRAMS = ("models/model.json", "serialized_exported_program.json")
_LONGEST_PROGRAM = 256 << 20
_MOST_TENSORS = 1000
_LONGEST_NAME = 4096

_SCRIPT_ROOT = re.compile(rb"\x80\x02c(__torch__[\w.]*)\n(\w+)\n")
"""How the pickle of TorchScript begins: the module and the class of what was scripted."""
_SCRIPT_FORWARD = re.compile(r"  def forward\(self: [\w.]+,\n(.*?)\) -> ([^\n]+):\n", re.DOTALL)
_SCRIPT_ARGUMENT = re.compile(r"(\w+): ([^=]+)(=.*)?")
_SCRIPT_TYPES = {"Tensor": "FP32", "List[str]": "STRING"}
"""The datatype of a tensor is not said: FP32 is what most have."""

_TYPES = {
    1: "UINT8",
    2: "INT8",
    3: "INT16",
    4: "INT32",
    5: "INT64",
    6: "FP16",
    7: "FP32",
    8: "FP64",
    12: "BOOL",
    13: "BF16",
    28: "UINT16",
}
"""Data types by their numbers in the schema of torch.export."""


class Declared(NamedTuple):
    """A tensor of a program; -1 in `dims` is any size."""

    name: str
    data_type: str
    dims: tuple[int, ...]


class Program(NamedTuple):
    """The tensors that a program takes and gives, all of them in order."""

    inputs: tuple[Declared, ...]
    outputs: tuple[Declared, ...]


_BEGINNINGS = {".txt": b"tree", ".ubj": b"{", ".pt2": b"PK"}
"""How the files of an ending begin: LightGBM's text, XGBoost's UBJSON, archives of PyTorch."""


def damage(path: Path) -> str:
    """Why a file is no model of its ending, as far as its ends say it; empty where it may be one.

    For files that do not say how they are served, lest lines be asked for that help nothing.
    """
    try:
        with path.open("rb") as file:
            start = file.read(4)
            file.seek(-min(path.stat().st_size, 1), SEEK_END)
            last = file.read()
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if not start:
        return "is empty"
    if not start.startswith(_BEGINNINGS.get(path.suffix, b"")):
        return "is not of the format that its ending says"
    cut = path.suffix == ".ubj" and last != b"}"
    if cut or (start.startswith(b"PK") and not zipfile.is_zipfile(path)):
        return "is cut off: its end is not there"
    return ""


def is_classifier(path: Path) -> tuple[str, str] | None:
    """`true` or `false` for a forest, and what its file says; `None` for one that is not known."""
    with path.open("rb") as file:
        if path.suffix == ".ubj":
            file.seek(max(path.stat().st_size - _HEAD, 0))
            said = _of_ubj(file.read(_HEAD))
        elif path.suffix == ".tl":
            head = file.read(_TREELITE_TASK + 1)
            known = len(head) > _TREELITE_TASK and head[:4] == b"\4\0\0\0"
            return _TREELITE_TASKS.get(head[_TREELITE_TASK]) if known else None
        else:
            line = re.search(rb"^objective=(\S+)", file.read(_HEAD), re.MULTILINE)
            said = "" if line is None else line[1].decode(errors="replace")
    if _CLASSES.fullmatch(said):
        return "true", f"objective {said}"
    return ("false", f"objective {said}") if _VALUES.fullmatch(said) else None


def _of_ubj(tail: bytes) -> str:
    """The objective of XGBoost, whose keys are sorted: it stands behind the trees."""
    _, _, objective = tail.rpartition(b"objective{")
    found = _UBJ_NAME.search(objective)
    if found is None:
        return ""
    name = objective[found.end() :][: found[1][0]]
    return name.decode(errors="replace") if len(name) == found[1][0] else ""


def scripted_program(path: Path) -> Program | None:
    """The arguments and results of TorchScript's `forward`, whose datatypes and dims are guesses.

    `None` where it does not say them, and for what takes or gives other than tensors and strings.
    """
    try:
        names = zip_members(path)
        with zipfile.ZipFile(path) as archive:
            (root,) = (name for name in names if re.fullmatch(r"[^/]+/data\.pkl", name))
            with archive.open(root) as file:
                scripted = _SCRIPT_ROOT.match(file.read(_LONGEST_NAME))
            if scripted is None:
                return None
            module, kind = (part.decode() for part in scripted.groups())
            member = f"{root.removesuffix('data.pkl')}code/{module.replace('.', '/')}.py"
            if archive.getinfo(member).file_size > _LONGEST_PROGRAM:
                return None
            code = archive.read(member).decode()
    except (ArchiveError, zipfile.BadZipFile, LookupError, OSError, *DAMAGES):
        return None  # no TorchScript, or another form of it: whoever loads it says what is wrong
    return _of_forward(code.partition(f"class {kind}(Module):\n")[2].partition("\nclass ")[0])


def _of_forward(code: str) -> Program | None:
    forward = _SCRIPT_FORWARD.search(code)
    if forward is None:
        return None
    inputs = []
    for line in forward[1].split(",\n"):
        argument = _SCRIPT_ARGUMENT.fullmatch(line.strip())
        if argument is None:
            return None
        name, kind, default = argument.groups()
        if kind in _SCRIPT_TYPES:
            inputs.append(Declared(name, _SCRIPT_TYPES[kind], (-1,)))
        elif default is None:
            return None
    tuple_of = re.fullmatch(r"Tuple\[(.+)\]", forward[2])
    kinds = tuple_of[1].split(", ") if tuple_of else [forward[2]]
    if not inputs or not all(kind in _SCRIPT_TYPES for kind in kinds):
        return None
    outputs = [
        Declared(f"output__{at}", _SCRIPT_TYPES[kind], (-1,)) for at, kind in enumerate(kinds)
    ]
    return Program(tuple(inputs), tuple(outputs))


def exported_program(path: Path) -> Program | None:
    """The tensors of a package of `torch.export`; `None` where it does not say them.

    Compiled packages do not, nor those whose arguments are not all tensors.
    """
    try:
        names = [name for name in zip_members(path) if name.endswith(_PROGRAMS)]
        if len(names) != 1:
            return None
        with zipfile.ZipFile(path) as archive:
            if archive.getinfo(names[0]).file_size > _LONGEST_PROGRAM:
                return None
            return _tensors(json.loads(archive.read(names[0]))["graph_module"])
    except (ArchiveError, zipfile.BadZipFile, LookupError, TypeError, RecursionError, *DAMAGES):
        return None  # another schema, or no package: whoever loads it says what is wrong


def _tensors(module: Mapping[str, Any]) -> Program | None:
    values, signature = module["graph"]["tensor_values"], module["signature"]
    given = [each["user_input"]["arg"] for each in signature["input_specs"] if "user_input" in each]
    made = [
        each["user_output"]["arg"] for each in signature["output_specs"] if "user_output" in each
    ]
    if not (0 < len(given) < _MOST_TENSORS and 0 < len(made) < _MOST_TENSORS):
        return None
    keys = _result_names(module, len(made))
    inputs = [_declared(values, arg["as_tensor"]["name"], "") for arg in given]
    outputs = [
        _declared(values, arg["as_tensor"]["name"], key)
        for arg, key in zip(made, keys, strict=True)
    ]
    return Program(tuple(inputs), tuple(outputs))


def _declared(values: Mapping[str, Any], name: str, key: str) -> Declared:
    meta = values[name]
    dims = tuple(int(size.get("as_int", -1)) for size in meta["sizes"])
    return Declared(one_line(key or name), _TYPES[meta["dtype"]], dims)


def _result_names(module: Mapping[str, Any], count: int) -> Sequence[str]:
    """Names that end with the places of results, behind the keys of a dictionary if they are."""
    keys: Any = ()
    for call in module.get("module_call_graph") or ():
        if call["fqn"] == "" and call["signature"]:
            tree = json.loads(call["signature"]["out_spec"])[1]
            if tree["type"] == "builtins.dict":
                keys = [str(key) for key in json.loads(tree["context"])]
    plain = len(keys) == count and all(re.fullmatch(r"(?!.*__)\w+", key) for key in keys)
    return [f"{keys[at] if plain else 'output'}__{at}" for at in range(count)]


def lines_of(tensors: Sequence[Declared], field: str, *, batched: bool) -> Iterator[str]:
    """The lines of a configuration; `batched`, without the first dimension."""
    for name, data_type, dims in tensors:
        shown = dims[1:] if batched else dims
        shape = f"[ {', '.join(map(str, shown))} ]" if shown else "[ 1 ] reshape { shape: [ ] }"
        known = f"name: {quoted(name)} data_type: TYPE_{data_type}"
        yield f"{field} [ {{ {known} dims: {shape} }} ]"
