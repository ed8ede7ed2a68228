"""`Program`: a model that PyTorch has loaded, from one of four kinds of files."""

from __future__ import annotations

import os
import pickle
import re
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Final

from penstock.backend import BackendNotInstalledError, ModelConfig, ModelLoadError
from penstock_backends.pytorch.naming import input_names
from penstock_backends.pytorch.program_file import FileKind, check_host, kind_of
from penstock_backends.pytorch.settings import NOT_INSTALLED, TorchSettings

_ONLY_TENSORS: Final = (
    "Only a single input of type Dict(str, Tensor) or input(s) of type Tensor are supported."
)

_ONLY_DATA: Final = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
"""Variable by which PyTorch reads pickles as data only, also those within packages."""


@cache
def pytorch() -> Any:
    """The library, which takes seconds and half a gigabyte; raises `BackendNotInstalledError`."""
    try:
        import torch
    except ImportError as error:
        raise BackendNotInstalledError(NOT_INSTALLED) from error
    return torch


@dataclass(frozen=True, slots=True)
class Program:
    """A loaded model: what it calls its arguments and results, and how it is run."""

    run: Callable[[Mapping[int, Any]], Any]
    """Takes arguments by position, tensors and lists of strings; returns what the model does."""
    inputs: Sequence[str] = ()
    """The arguments' names by position, where the model has them."""
    input_paths: Sequence[str] = ()
    """Names of a package's arguments by their place, such as `ARGS[0]`."""
    output_paths: Sequence[str] = ()
    """The same for results, such as `RESULT[0]`."""
    most: int | None = None
    """The number of arguments, where it is known."""
    by_order: bool = False
    """Whether arguments and results have no names, only the order of the configuration."""


def load_program(
    config: ModelConfig, path: Path, device: str | None, settings: TorchSettings
) -> Program:
    """Load a file on a device, or where the model itself wants it; raises `ModelLoadError`."""
    try:
        with warnings.catch_warnings(), mode(settings):
            warnings.simplefilter("ignore", FutureWarning)  # TorchScript goes on to be served
            return _load(config, path, device, settings)
    except ModelLoadError:
        raise
    except pickle.UnpicklingError as error:
        read = path.with_suffix(".pt") if path.suffix == ".py" else path
        raise ModelLoadError(
            f"failed to load model '{config.name}': {read} would run code while it is read; save"
            " it with torch.jit.save or torch.export.save, or only its state_dict, or start the"
            " server with --allow-unsafe-models=true"
        ) from error
    except Exception as error:  # PyTorch has no base class of errors
        raise ModelLoadError(f"failed to load model '{config.name}': {reason(error)}") from error


def mode(settings: TorchSettings) -> Any:
    """The context in which the model is loaded and run."""
    torch = pytorch()
    return torch.inference_mode() if settings.inference_mode else torch.no_grad()


def prepare(config: ModelConfig, device: str | None, settings: TorchSettings) -> None:
    """Set what holds for this thread; in a process of its own, for the whole process."""
    torch = pytorch()
    if device and device.startswith("cuda") and not torch.cuda.is_available():
        raise ModelLoadError(
            f"model '{config.name}' asks for KIND_GPU, and PyTorch {torch.__version__} finds no GPU"
            " here: ask for KIND_CPU, or install a build for this machine's driver"
        )
    os.environ[_ONLY_DATA] = "0" if settings.allows_pickle else "1"
    torch.set_num_threads(settings.threads)
    if settings.on_threads:
        return
    if settings.pools:
        torch.set_num_interop_threads(settings.pools)
    torch.backends.cudnn.enabled = settings.cudnn
    torch._C._set_graph_executor_optimize(settings.optimized)
    for value, switch in (
        (settings.profiling_executor, "_jit_set_profiling_executor"),
        (settings.profiling, "_jit_set_profiling_mode"),
        (settings.fuser, "_jit_set_texpr_fuser_enabled"),
    ):
        if value is not None:
            getattr(torch._C, switch)(value)


def reason(error: Exception) -> str:
    """An error of PyTorch without the stack of its C++ code."""
    text = str(error).partition("Exception raised from")[0]
    return text.partition("\nThe above operation failed in interpreter")[0].strip() or repr(error)


def _load(config: ModelConfig, path: Path, device: str | None, settings: TorchSettings) -> Program:
    kind = kind_of(config, path)
    check_host(config, path, kind, settings)
    if kind is FileKind.MODULE:
        return _module_in_python(config, path, device, settings)
    if kind is FileKind.COMPILED:
        return _compiled_package(path, device)
    if kind is FileKind.EXPORTED:
        return _exported(config, path, device, settings)
    if kind is FileKind.SCRIPT:
        return _script(config, path, device, settings)
    return _pickled(config, path, device, settings)


# -- TorchScript ----------------------------------------------------------------------------------


def _script(
    config: ModelConfig, path: Path, device: str | None, settings: TorchSettings
) -> Program:
    module = pytorch().jit.load(str(path), map_location=device)
    _share(config, module, path, settings)
    arguments = module.forward.schema.arguments[1:]  # behind `self`
    kinds = [argument.type.kind() for argument in arguments]
    if "DictType" in kinds:
        if len(kinds) > 1:
            raise ModelLoadError(
                f"Multiple inputs of kind DictType were detected. {_ONLY_TENSORS}"
                if kinds.count("DictType") > 1
                else f"An input of type 'DictType' was detected in the model. {_ONLY_TENSORS}"
            )
        return _of_dictionary(module, input_names(config))
    for argument, kind in zip(arguments, kinds, strict=True):
        if kind not in ("TensorType", "ListType") and not argument.has_default_value():
            raise ModelLoadError(
                f"An input of type '{kind}' was detected in the model. {_ONLY_TENSORS}"
            )
    names = [argument.name for argument in arguments]

    def run(values: Mapping[int, Any]) -> Any:
        return module(**{names[place]: value for place, value in values.items()})

    return Program(run, names, most=len(names))


def _of_dictionary(module: Any, keys: Sequence[str]) -> Program:
    """A model with one argument, whose keys are the names of the configuration."""

    def run(values: Mapping[int, Any]) -> Any:
        return module({keys[place]: value for place, value in values.items()})

    return Program(run, keys, most=len(keys))


# -- packages -------------------------------------------------------------------------------------


def _exported(
    config: ModelConfig, path: Path, device: str | None, settings: TorchSettings
) -> Program:
    program = pytorch().export.load(str(path))
    module = program.module() if device is None else program.module().to(device)
    _share(config, module, path, settings)
    names = [str(name) for name in program.graph_signature.user_inputs]
    return _of_package(module, program.call_spec.in_spec, program.call_spec.out_spec, names)


def _compiled_package(path: Path, device: str | None) -> Program:
    from torch._inductor import aoti_load_package
    from torch.utils import _pytree as pytree

    number = int(device.partition(":")[2]) if device and ":" in device else -1
    package = aoti_load_package(str(path), device_index=number)
    spec_in, spec_out = map(pytree.treespec_loads, package.loader.get_call_spec())
    return _of_package(package, spec_in, spec_out, ())


def _of_package(call: Any, spec_in: Any, spec_out: Any, names: Sequence[str]) -> Program:
    """A model whose arguments and results are the leaves of two trees."""
    from torch.utils import _pytree as pytree

    def run(values: Mapping[int, Any]) -> Any:
        args, kwargs = pytree.tree_unflatten([values[n] for n in range(len(values))], spec_in)
        return tuple(pytree.tree_leaves(call(*args, **kwargs)))

    paths = [_path(keys) for keys in _leaves(spec_in)]
    results = ["RESULT" + _subscripts(keys) for keys in _leaves(spec_out)]
    return Program(run, names, paths, results, len(paths))


def _leaves(spec: Any) -> Sequence[Sequence[Any]]:
    """The way to each leaf, as indices and keys."""
    from torch.utils import _pytree as pytree

    tree = pytree.tree_unflatten(list(range(spec.num_leaves)), spec)
    ways, _ = pytree.tree_flatten_with_path(tree)
    return [[getattr(step, "idx", getattr(step, "key", step)) for step in way] for way, _ in ways]


def _path(keys: Sequence[Any]) -> str:
    """An argument's place: trees of arguments are pairs of a tuple and a dictionary."""
    return ("ARGS", "KWARGS")[keys[0]] + _subscripts(keys[1:])


def _subscripts(keys: Sequence[Any]) -> str:
    return "".join(f"[{key}]" for key in keys)


# -- modules in Python ----------------------------------------------------------------------------


def _module_in_python(
    config: ModelConfig, path: Path, device: str | None, settings: TorchSettings
) -> Program:
    torch = pytorch()
    module = _class_in(config, path)()
    weights = path.with_suffix(".pt")
    if weights.is_file():
        module.load_state_dict(_unpickled(weights, device or "cpu", settings), strict=True)
        _share(config, module, weights, settings)
    module = (module if device is None else module.to(device)).eval()
    return _of_call(torch.compile(module, **settings.compile_options))


def _class_in(config: ModelConfig, path: Path) -> Any:
    """The first subclass of `nn.Module` by name; the file's own go before imported ones."""
    torch = pytorch()
    name = f"penstock_model_{re.sub(r'[^0-9a-zA-Z]', '_', config.name)}"
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    source = sys.modules[name] = module_from_spec(spec)
    sys.path.insert(0, str(path.parent))
    spec.loader.exec_module(source)
    found = [
        each
        for each in (getattr(source, name) for name in dir(source))
        if isinstance(each, type)
        and issubclass(each, torch.nn.Module)
        and each is not torch.nn.Module
    ]
    if not found:
        raise ModelLoadError(
            f"failed to load model '{config.name}': {path} has no subclass of torch.nn.Module"
        )
    return next((each for each in found if each.__module__ == name), found[0])


def _pickled(
    config: ModelConfig, path: Path, device: str | None, settings: TorchSettings
) -> Program:
    """A whole module as `torch.save` writes it, which is code to be run while it is read."""
    found = _unpickled(path, device, settings)
    if not isinstance(found, pytorch().nn.Module):
        raise ModelLoadError(
            f"failed to load model '{config.name}': {path} has no model but weights; put the module"
            f' that they belong to into model.py beside it, and runtime: "model.py" into the'
            " configuration"
        )
    _share(config, found, path, settings)
    return _of_call(found.eval())


def _share(config: ModelConfig, module: Any, path: Path, settings: TorchSettings) -> None:
    if settings.shares_weights and not settings.on_threads:  # else there is one copy anyway
        from penstock_backends.pytorch.shared_weights import share_weights

        share_weights(config.name, module, path)


def _unpickled(path: Path, device: str | None, settings: TorchSettings) -> Any:
    """The content of a file of `torch.save`: only data, unless the operator allows more."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytorch().load(
            str(path), map_location=device, weights_only=not settings.allows_pickle
        )


def _of_call(module: Any) -> Program:
    """A module whose arguments are in the order of the configuration."""

    def run(values: Mapping[int, Any]) -> Any:
        return module(*(values[place] for place in range(len(values))))

    return Program(run, by_order=True)
