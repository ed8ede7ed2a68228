"""The command `penstock sagemaker`, which an image for SageMaker runs as `serve` (CLD-04).

It turns the service's environment variables into options, as the script of that name does that
comes with Triton (its `docker/sagemaker/serve`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

MODEL_VARIABLE = "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME"

_MODELS = Path("/opt/ml/model")
"""Where the service puts the only model, or an ensemble with its models."""

_NO_MODELS = Path("/tmp/sagemaker")
"""The repository where the service loads models by their folders."""

_ALWAYS = (
    "--allow-sagemaker=true",
    "--allow-grpc=false",
    "--allow-http=false",
    "--allow-metrics=false",
    "--model-control-mode=explicit",
)

_OPTIONS = (
    ("SAGEMAKER_BIND_TO_PORT", "--sagemaker-port=", ""),
    ("SAGEMAKER_SAFE_PORT_RANGE", "--sagemaker-safe-port-range=", ""),
    ("SAGEMAKER_TRITON_BUFFER_MANAGER_THREAD_COUNT", "--buffer-manager-thread-count=", ""),
    ("SAGEMAKER_TRITON_THREAD_COUNT", "--sagemaker-thread-count=", ""),
    ("SAGEMAKER_TRITON_LOG_VERBOSE", "--log-verbose=", "true"),
    ("SAGEMAKER_TRITON_LOG_INFO", "--log-info=", ""),
    ("SAGEMAKER_TRITON_LOG_WARNING", "--log-warning=", ""),
    ("SAGEMAKER_TRITON_LOG_ERROR", "--log-error=", ""),
    (
        "SAGEMAKER_TRITON_SHM_DEFAULT_BYTE_SIZE",
        "--backend-config=python,shm-default-byte-size=",
        "16777216",
    ),
    (
        "SAGEMAKER_TRITON_SHM_GROWTH_BYTE_SIZE",
        "--backend-config=python,shm-growth-byte-size=",
        "1048576",
    ),
    ("SAGEMAKER_TRITON_TENSORFLOW_VERSION", "--backend-config=tensorflow,version=", ""),
)
"""Variables, the options that they are values of, and the defaults; without one it is left out."""


_ONE_NAMESPACE = "SAGEMAKER_TRITON_DISABLE_MODEL_NAMESPACING"
"""A variable: with `true` models of two folders may not have one name."""


class SagemakerError(Exception):
    """The model folder is not what the service has to bring; the text is for its log."""


class Start(NamedTuple):
    """Options of the server, and the model of `/invocations`; none where models come and go."""

    options: list[str]
    model: str = ""


def start(
    environment: Mapping[str, str],
    gpus: Callable[[], int],
    models: Path | None = None,
    no_models: Path | None = None,
) -> Start:
    """The options to start the server with.

    Raises `SagemakerError`, or `OSError` if the folder of no models cannot be made. `gpus` counts
    them; the folders are the service's unless they are given.
    """
    models, no_models = models or _MODELS, no_models or _NO_MODELS
    options = [*_ALWAYS, *_chosen(environment)]
    if environment.get(_ONE_NAMESPACE) != "true":
        options.append("--model-namespacing=true")
    if limit := environment.get("SAGEMAKER_TRITON_MODEL_LOAD_GPU_LIMIT"):
        options += [f"--model-load-gpu-limit={gpu}:{limit}" for gpu in range(gpus())]
    if environment.get("SAGEMAKER_MULTI_MODEL") == "true":
        no_models.mkdir(parents=True, exist_ok=True)
        return Start([*options, f"--model-repository={no_models}"])
    model = _default_model(models, environment.get(MODEL_VARIABLE, ""))
    return Start([*options, f"--model-repository={models}", f"--load-model={model}"], model)


def _chosen(environment: Mapping[str, str]) -> Iterator[str]:
    for variable, option, default in _OPTIONS:
        if value := environment.get(variable) or default:
            yield option + value


def _default_model(models: Path, named: str) -> str:
    """The model that is named, or the only one that there is."""
    if (models / "config.pbtxt").is_file():
        raise SagemakerError(
            "ERROR: Incorrect directory structure.\n"
            "       Model directory needs to contain the top level folder"
        )
    if named:
        if (models / named).is_dir():
            return named
        raise SagemakerError(
            f"ERROR: Directory with provided {MODEL_VARIABLE} {named} does not exist"
        )
    found = sorted(path.name for path in models.glob("*/"))
    if not found:
        raise SagemakerError("ERROR: No model found in model repository")
    if len(found) > 1:
        raise SagemakerError(
            "ERROR: More than 1 model directory found in model repository.\n"
            f"       Either provide a single directory or set {MODEL_VARIABLE} to run the ensemble"
            f" backend.\n       Directories found in model repository: {' '.join(found)}"
        )
    return found[0]
