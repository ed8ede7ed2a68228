"""`Forest`: trees that treelite has read, as a graph from `input__0` to `output__0`."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from math import prod
from pathlib import Path
from tempfile import mkdtemp
from threading import Lock
from typing import Any
from weakref import finalize

import numpy as np

from penstock.backend import (
    Array,
    BackendNotInstalledError,
    DataType,
    InternalError,
    ModelConfig,
    ModelLoadError,
)
from penstock_backends.fil.settings import COMPILE, FilSettings
from penstock_backends.tensor_models import Graph, GraphTensor

Contributions = Callable[[Array], Array]
"""SHAP values: the share of each feature of a row in its answer, and last that of all rows."""

NOT_INSTALLED = (
    "the fil backend needs a package that is not installed; install it with: "
    "pip install 'penstock[fil]'"
)

INPUT, OUTPUT, SHAP = "input__0", "output__0", "treeshap_output"


class Forest(Graph):
    """The trees of one file, and the rules by which they answer.

    Of two classes with one probability, both are answered where the configuration has two. What
    `contributions` computes, SHAP values, is another output.
    """

    engine = "treelite"

    def __init__(
        self,
        config: ModelConfig,
        trees: Any,
        settings: FilSettings,
        contributions: Contributions | None = None,
    ) -> None:
        header = trees.get_header_accessor()
        classes = int(header.get_field("num_class")[0])
        scalar = int(header.get_field("leaf_vector_shape")[1]) == 1
        if classes > 1 and settings.predict_proba:
            header.set_field("postprocessor", "softmax" if scalar else "identity_multiclass")
        self._trees = trees
        self._settings = settings
        self._dtype = np.dtype(trees.input_type)
        self._both = _tells_both(config, classes)
        self._contributions = contributions
        self._owner: object = None
        self._predictor: Any = None
        features = int(trees.num_feature)
        self.inputs, self.outputs = tensors_of(config, settings, features, classes)
        self.defaults = {}

    def compiled(self, library: CompiledTrees, owner: object) -> Forest:
        """The same, run by a library of its trees; keeps the library's `owner`."""
        self._owner = owner
        self._predictor = library.predictor(self._trees, self._settings.threads)
        return self

    def run(self, feeds: Mapping[str, Array], names: Sequence[str]) -> list[Array]:
        try:
            found = [self._output(name, feeds[INPUT]) for name in names]
        except Exception as error:  # treelite's class is a plain `Exception`
            raise InternalError(f"treelite error: {error}") from error
        return [array.astype(np.float32, copy=False) for array in found]

    def _output(self, name: str, rows: Array) -> Array:
        from treelite import gtil

        if name == SHAP:
            assert self._contributions is not None
            return self._contributions(rows).reshape(len(rows), *self.outputs[SHAP].dims[1:])
        rows = np.ascontiguousarray(rows, self._dtype)
        sums: Array
        if self._predictor is not None:
            from tl2cgen import DMatrix

            sums = self._predictor.predict(DMatrix(rows, dtype=rows.dtype.name))
        else:
            sums = gtil.predict(self._trees, rows, nthread=self._settings.threads)
        return self._answer(sums[:, 0, :])

    def _answer(self, found: Array) -> Array:
        """Probabilities or sums, or the class that they say, one row for each row."""
        settings = self._settings
        if not settings.is_classifier:
            return found
        if settings.predict_proba:
            return np.concatenate([1 - found, found], axis=1) if self._both else found
        if found.shape[1] > 1:
            classes: Array = found.argmax(axis=1, keepdims=True)
            return classes
        above: Array = found > settings.threshold
        return above


_Tensors = dict[str, GraphTensor]


def tensors_of(
    config: ModelConfig, settings: FilSettings, features: int, classes: int
) -> tuple[_Tensors, _Tensors]:
    """The inputs and the outputs of a forest with so many features and classes, as it is served."""
    inputs = {INPUT: GraphTensor(INPUT, DataType.FP32, (-1, features))}
    width = _width(config, settings, classes)
    outputs = {OUTPUT: GraphTensor(OUTPUT, DataType.FP32, (-1, width))}
    if SHAP in config.outputs_by_name:
        dims = _shap_dims(config, classes, features)
        outputs[SHAP] = GraphTensor(SHAP, DataType.FP32, (-1, *dims))
    return inputs, outputs


def _width(config: ModelConfig, settings: FilSettings, classes: int) -> int:
    if settings.is_classifier and not settings.predict_proba:
        return 1
    return 2 if settings.predict_proba and _tells_both(config, classes) else classes


def _tells_both(config: ModelConfig, classes: int) -> bool:
    """Whether the probabilities of both classes are answered, of which the trees have one."""
    return classes == 1 and _declared(config) == 2


def read_forest(config: ModelConfig, path: Path, settings: FilSettings) -> Forest:
    """Read the file; raises `ModelLoadError`."""
    treelite = _treelite()
    try:
        trees = _trees(treelite, path, settings)
        wanted = SHAP in config.outputs_by_name
        contributions = _contributions(path, settings) if wanted else None
        return Forest(config, trees, settings, contributions)
    except ModelLoadError:
        raise
    except Exception as error:  # treelite's class is a plain `Exception`
        raise ModelLoadError(
            f"failed to load model '{config.name}': {path.name} is not a {settings.model_type} file"
            f" that treelite reads: {_last_line(error)}{_advice_on(path)}"
        ) from error


def _trees(treelite: Any, path: Path, settings: FilSettings) -> Any:
    frontend, unknown = treelite.frontend, settings.allow_unknown_field
    match settings.model_type:
        case "xgboost":
            _try(path, settings.model_type)
            return frontend.load_xgboost_model_legacy_binary(path)
        case "xgboost_json":
            return frontend.load_xgboost_model(
                path, format_choice="json", allow_unknown_field=unknown
            )
        case "xgboost_ubj":
            return frontend.load_xgboost_model(
                path, format_choice="ubjson", allow_unknown_field=unknown
            )
        case "lightgbm":
            _try(path, settings.model_type)
            return frontend.load_lightgbm_model(path)
        case _:
            _try(path, settings.model_type)
            return treelite.Model.deserialize(path)


_TRIAL_SECONDS = 10
"""Seconds of processor time: on a busy machine a file that is sound takes many times as long."""
_MOST_WAITING = 20
"""How many times as long a trial may take, for its processor time."""
_KNOWN = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "HOME")
"""Variables for the trial of a file that may be hostile: the environment may hold secrets."""
_BYTES_A_SECOND = 10_000_000
"""For each of so many a second is added: one that is sound is read many times as fast."""
_TRIAL = """
import resource, sys
most = resource.getrlimit(resource.RLIMIT_CPU)[1]
resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[3]), most))
import numpy, treelite
legacy = treelite.frontend.load_xgboost_model_legacy_binary
lightgbm, whole = treelite.frontend.load_lightgbm_model, treelite.Model.deserialize
readers = {"xgboost": legacy, "lightgbm": lightgbm, "treelite_checkpoint": whole}
trees = readers[sys.argv[2]](sys.argv[1])
rows = numpy.zeros((2, trees.num_feature), trees.input_type)
rows[1] = numpy.nan
treelite.gtil.predict(trees, rows, nthread=1)
"""


def _try(path: Path, model_type: str) -> None:
    """Read a file in another process first: of damaged ones some end it, or hang."""
    known = {name: value for name, value in os.environ.items() if name in _KNOWN}
    limit = _TRIAL_SECONDS + path.stat().st_size // _BYTES_A_SECOND
    command = [sys.executable, "-P", "-c", _TRIAL, str(path), model_type, str(limit)]
    late = f"it was not read in {limit} s of processor time"
    try:
        ran = subprocess.run(
            command, env=known, capture_output=True, timeout=limit * _MOST_WAITING, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ValueError(late) from error
    if ran.returncode == -signal.SIGXCPU:
        raise ValueError(late)
    if ran.returncode < 0:
        raise ValueError(f"the process that read it was ended by signal {-ran.returncode}")


def _declared(config: ModelConfig) -> int:
    """The elements of a row that the configuration has for the output."""
    output = config.outputs_by_name.get(OUTPUT)
    return output.backend_dims[-1] if output is not None and output.backend_dims else 0


def _shap_dims(config: ModelConfig, classes: int, features: int) -> tuple[int, ...]:
    """A value for each feature and one for all, of each class; flat unless declared otherwise."""
    width = classes * (features + 1)
    output = config.outputs_by_name.get(SHAP)
    dims = tuple(output.backend_dims) if output is not None else ()
    return dims if min(dims, default=0) > 0 and prod(dims) == width else (width,)


_PICKLE = re.compile(rb"\x80[\x02-\x05]")
"""How a pickle begins."""


def _advice_on(path: Path) -> str:
    """Advice on a pickle, which would run code while it is read."""
    with path.open("rb") as file:
        if not _PICKLE.match(file.read(2)):
            return ""
    return (
        "; it is a pickle, which this backend never reads: save the trees as their framework does,"
        ' or run treelite.sklearn.import_model(trees).serialize("checkpoint.tl")'
    )


def _last_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[-1]


def _treelite() -> Any:
    try:
        import treelite
    except ImportError as error:
        raise BackendNotInstalledError(NOT_INSTALLED) from error
    return treelite


# -- trees as machine code -------------------------------------------------------------------------

_TREES_IN_A_FILE = 64
"""Compilers take more than twice the time for twice the code."""


class CompiledTrees:
    """A shared library of the trees of one model, whose file goes with this object."""

    def __init__(self, config: ModelConfig) -> None:
        self._config = config
        folder = mkdtemp(prefix="penstock-trees-")
        finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._path = Path(folder) / "trees.so"
        self._making = Lock()

    def predictor(self, trees: Any, threads: int) -> Any:
        """The predictor of the trees; who asks first has them compiled. Raises `ModelLoadError`."""
        tl2cgen = _tl2cgen()
        with self._making:
            try:
                if not self._path.exists():
                    files = max(threads, trees.num_tree // _TREES_IN_A_FILE)
                    tl2cgen.export_lib(
                        trees,
                        toolchain=_compiler(),
                        libpath=self._path,
                        params={"parallel_comp": min(files, trees.num_tree)},
                        nthread=threads,
                    )
                return tl2cgen.Predictor(self._path, nthread=threads)
            except ModelLoadError:
                raise
            except Exception as error:  # those of tl2cgen, of the compiler and of the disk
                raise ModelLoadError(
                    f"failed to load model '{self._config.name}': its trees could not be compiled:"
                    f" {_last_line(error)}"
                ) from error


def _compiler() -> str:
    for name in ("gcc", "clang"):
        if shutil.which(name):
            return name
    raise ModelLoadError(
        f"parameter '{COMPILE}' needs a C compiler, and there is neither gcc nor clang here;"
        " install one, or leave the parameter out"
    )


def _tl2cgen() -> Any:
    try:
        import tl2cgen
    except ImportError as error:
        raise _missing("tl2cgen", f"parameter '{COMPILE}'") from error
    return tl2cgen


# -- SHAP values, which the frameworks compute that made the trees ---------------------------------


def _contributions(path: Path, settings: FilSettings) -> Contributions:
    """Read the file once more, with its framework; raises `ModelLoadError`."""
    if settings.model_type == "lightgbm":
        return _lightgbm(path, settings.threads)
    if settings.model_type.startswith("xgboost"):
        return _xgboost(path, settings.threads)
    raise ModelLoadError(
        "treeshap_output is computed by the framework that made the trees, and a"
        f" {settings.model_type} does not tell which; serve the framework's own file"
    )


def _lightgbm(path: Path, threads: int) -> Contributions:
    try:
        from lightgbm import Booster
    except ImportError as error:
        raise _missing("lightgbm") from error
    booster = Booster(model_file=str(path))

    def contributions(rows: Array) -> Array:
        return np.asarray(booster.predict(rows, pred_contrib=True, num_threads=threads))

    return contributions


def _xgboost(path: Path, threads: int) -> Contributions:
    try:
        from xgboost import Booster, DMatrix
    except ImportError as error:
        raise _missing("xgboost-cpu") from error
    booster: Any = Booster({"nthread": threads}, model_file=str(path))

    def contributions(rows: Array) -> Array:
        return np.asarray(booster.predict(DMatrix(rows, nthread=threads), pred_contribs=True))

    return contributions


def _missing(package: str, what: str = SHAP) -> BackendNotInstalledError:
    return BackendNotInstalledError(
        f"{what} needs a package that is not installed; install it with: pip install {package}"
    )
