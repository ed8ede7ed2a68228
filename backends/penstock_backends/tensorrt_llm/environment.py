"""The environment of a process with TensorRT-LLM: MPI and GPUs, set before it is imported."""

from __future__ import annotations

import os
import re
from collections.abc import MutableMapping

from penstock.backend import InstanceContext, ModelLoadError
from penstock_backends.language_model.visible_gpu import VISIBLE, see_only
from penstock_backends.tensorrt_llm.parameter_text import read_parameter
from penstock_backends.tensorrt_llm.settings import EngineSettings

DEVICES = "gpu_device_ids"
"""Parameter of a model: the GPUs of each instance, as in `0,1;2,3` (TL-08)."""

_JOB = ("OMPI_", "PMIX_", "PMI_", "ORTE_")
_TUNING = ("OMPI_MCA_", "PMIX_MCA_")
_JOB_TUNING = "OMPI_MCA_orte_"


def leave_job(environment: MutableMapping[str, str] = os.environ) -> None:
    """Forget the MPI job that the server is part of: the engine's workers are a job of their own.

    What tunes MPI stays.
    """
    for name in list(environment):
        tunes = name.startswith(_TUNING) and not name.startswith(_JOB_TUNING)
        if name.startswith(_JOB) and not tunes:
            del environment[name]


def pin_devices(
    settings: EngineSettings,
    context: InstanceContext,
    environment: MutableMapping[str, str] = os.environ,
) -> None:
    """Let the instance see its own GPUs only; raises `ModelLoadError` where none are named."""
    gpus = _devices(context)
    if gpus is None:
        _pin_one(settings, context, environment)
        return
    names = ",".join(gpus)
    environment[VISIBLE] = environment["TRTLLM_VISIBLE_DEVICES"] = names
    settings.values.setdefault("gpus_per_node", len(gpus))


def _devices(context: InstanceContext) -> list[str] | None:
    """The GPUs of this instance, where the model has several."""
    instances = sum(group.count or 1 for group in context.config.instance_group)
    given = read_parameter(context.config, DEVICES, str)
    if instances <= 1:
        return None
    if context.kind == "KIND_GPU" and given is None:
        return None
    if given is None:
        raise ModelLoadError(f"{DEVICES} parameter required when instance count > 1")
    lists = given.split(";")
    found = re.search(r"_(\d+)$", context.name)
    index = int(found.group(1)) if found else 0
    if index >= len(lists):
        raise ModelLoadError(f"{DEVICES} mismatch: instance {index} >= {len(lists)} entries")
    gpus = [gpu.strip() for gpu in lists[index].split(",") if gpu.strip()]
    if not gpus or not all(gpu.isdigit() for gpu in gpus):
        raise ModelLoadError(f"{DEVICES} must be numbers, as in '0,1;2,3', not '{given}'")
    return gpus


def _pin_one(
    settings: EngineSettings, context: InstanceContext, environment: MutableMapping[str, str]
) -> None:
    if context.kind != "KIND_GPU":
        return
    if settings.devices > 1:
        raise ModelLoadError(
            "KIND_GPU is for models on one GPU: give KIND_CPU in the instance group, "
            f"and the parameter '{DEVICES}' for several instances"
        )
    see_only([context.device_id], environment)
