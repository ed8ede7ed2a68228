"""Environment variables of this process that model processes get: an allow-list, not all.

What the operator gave the server, such as the secrets of its restrictions or a cloud's
credentials, is not for the code of models.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache

VARIABLE = "PENSTOCK_MODEL_ENV"
"""Environment variable with more names, separated by commas; `*` at the end of a beginning."""

PASSED = (
    # the system, its languages and its certificates
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "HOSTNAME", "LANG", "LANGUAGE", "LC_*", "TZ"),
    *("TERM", "TMPDIR", "TEMP", "TMP", "XDG_*", "LD_LIBRARY_PATH", "LD_PRELOAD", "MALLOC_*"),
    *("SSL_CERT_*", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    # Python, and compilers of kernels
    *("PYTHON*", "VIRTUAL_ENV", "CONDA*", "CC", "CXX", "NUMBA_*", "COVERAGE_*"),
    # devices, and threads of libraries
    *("CUDA*", "CUDNN*", "CUBLAS*", "NVIDIA*", "NCCL*", "NVTE_*", "UCX*", "GLOO*", "OMPI_*"),
    *("HIP_*", "ROCM*", "ROCR_*", "OMP*", "GOMP_*", "KMP_*", "MKL*", "OPENBLAS*", "BLIS_*"),
    *("NUMEXPR_*", "VECLIB_*"),
    # engines and libraries of models
    *("HF_*", "HUGGINGFACE*", "TRANSFORMERS*", "TOKENIZERS_*", "SAFETENSORS_*", "TORCH*"),
    *("PYTORCH*", "TF_*", "XLA_*", "JAX_*", "ORT_*", "OV_*", "OPENVINO*", "VLLM*", "TRTLLM*"),
    *("TLLM*", "LLM_CONFIG_PATH", "TENSORRT*", "TRITON_*", "TRITONSERVER_*", "FLASHINFER_*"),
    *("RAY*", "OTEL_*"),
    "PENSTOCK_*",
)
"""Names, and beginnings of names, that are passed on in any case."""

INSTALLING = ("PIP_*", "UV_*")
"""Those of programs that install the packages of a model's environment."""

_NEVER = ("TRITON_AWS_*", "TRITON_GCS_*", "TRITON_AZURE_*")
"""Credentials, which only who names them passes on."""


def passed_on(variables: Mapping[str, str], more: Iterable[str] = ()) -> dict[str, str]:
    """The variables of the allow-list, those that `VARIABLE` names there, and `more`."""
    named = [name.strip() for name in variables.get(VARIABLE, "").split(",")]
    wanted = [*filter(None, named), *more]
    return {
        name: value for name, value in variables.items() if _matches(name, wanted) or _passes(name)
    }


def pass_also(names: Iterable[str]) -> None:
    """Add names for all processes that are started from now on, those of preparations too."""
    given = os.environ.get(VARIABLE)
    if every := [*([given] if given else []), *names]:
        os.environ[VARIABLE] = ",".join(every)


@lru_cache(maxsize=1024)
def _passes(name: str) -> bool:
    return _matches(name, PASSED) and not _matches(name, _NEVER)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
