"""The page of all flags and environment variables is complete, and says what the code does."""

from __future__ import annotations

import ast

import pytest

from cli.environment_variables import BY_LIBRARIES, READ
from cli.readers import environment_reads, modules, readers
from cli.settings_reference import PAGE, page
from penstock.cli import tracing
from penstock.cli.flags import FLAGS
from penstock.cli.unsupported import UNSUPPORTED_OPTIONS
from penstock.settings.without_effect import WITHOUT_EFFECT

pytestmark = pytest.mark.slow  # whichever comes first reads all of the code

BY_OTHER_NAMES = {
    "backends/language_model/visible_gpu.py": {"CUDA_VISIBLE_DEVICES"},
    "backends/vllm/arguments/engine_args.py": {"PENSTOCK_SHARED_TMPDIR"},
    "backends/vllm/own_spans.py": {
        "PENSTOCK_OTLP_TRACES_ENDPOINT",
        "PENSTOCK_OTLP_TRACES_PROTOCOL",
    },
    "caching/redis_settings.py": {"TRITONCACHE_REDIS_USERNAME", "TRITONCACHE_REDIS_PASSWORD"},
    "models/remote/credentials.py": {"AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"},
    "cli/compound.py": set(),  # those that the operator names, for secrets
    "cli/sagemaker.py": {
        "SAGEMAKER_BIND_TO_PORT",
        "SAGEMAKER_SAFE_PORT_RANGE",
        "SAGEMAKER_TRITON_BUFFER_MANAGER_THREAD_COUNT",
        "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME",
        "SAGEMAKER_TRITON_LOG_ERROR",
        "SAGEMAKER_TRITON_LOG_INFO",
        "SAGEMAKER_TRITON_LOG_VERBOSE",
        "SAGEMAKER_TRITON_LOG_WARNING",
        "SAGEMAKER_TRITON_SHM_DEFAULT_BYTE_SIZE",
        "SAGEMAKER_TRITON_SHM_GROWTH_BYTE_SIZE",
        "SAGEMAKER_TRITON_TENSORFLOW_VERSION",
        "SAGEMAKER_TRITON_THREAD_COUNT",
    },
    "cli/tracing.py": {
        "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
        "OTEL_BSP_MAX_QUEUE_SIZE",
        "OTEL_BSP_SCHEDULE_DELAY",
        "OTEL_EXPORTER_OTLP_PROTOCOL",
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
    },
    "scheduling/first_batch.py": {
        "TRITONSERVER_BACKLOG_DELAY_SCHEDULER",
        "TRITONSERVER_DELAY_SCHEDULER",
    },
}
"""Variables that a module reads by names which are not written where they are read."""


def test_the_page_is_up_to_date() -> None:
    """Write it with `PYTHONPATH=tests .venv/bin/python tests/cli/settings_reference.py`."""
    assert PAGE.read_text() == page()


def test_the_page_has_every_flag() -> None:
    text = page()
    assert [name for name in FLAGS if f"| `--{name}` |" not in text] == []
    for mode, key in tracing._PARSERS:
        assert f"| `{mode},{key}` |" in text or f"| `{key}` |" in text


def test_a_flag_that_nobody_reads_says_why() -> None:
    silent = [line for line in page().splitlines() if line.startswith("| `--") and "| - |" in line]
    told = {row.flag for row in (*WITHOUT_EFFECT, *UNSUPPORTED_OPTIONS)}
    assert [line for line in silent if line.split("`")[1].removeprefix("--") not in told] == []


def test_the_page_has_every_variable_that_is_read() -> None:
    named = {one.name for one in READ}
    for (place, text), name in environment_reads().items():
        if name is None:
            assert place in BY_OTHER_NAMES, f"{place} reads a variable by '{text}'"
        else:
            assert name in named, f"{place} reads {name}"


@pytest.mark.parametrize("name", [one.name for one in READ])
def test_a_variable_has_the_readers_that_the_page_names(name: str) -> None:
    (variable,) = [one for one in READ if one.name == name]
    found = {place for (place, _), read in environment_reads().items() if read == name}
    found |= {place for place, names in BY_OTHER_NAMES.items() if name in names}
    assert found == set(variable.readers)


@pytest.mark.parametrize("place", BY_OTHER_NAMES)
def test_a_module_has_the_names_that_it_reads_by(place: str) -> None:
    where = (place, "core/backend.py") if place.startswith("backends/") else (place,)
    nodes = [node for each in where for node in ast.walk(modules(whole=True)[each])]
    texts = {node.value for node in nodes if isinstance(node, ast.Constant)}
    for name in BY_OTHER_NAMES[place]:
        assert {name, name.removeprefix("OTEL_").lower()} & texts


def test_the_modules_that_the_page_names_exist() -> None:
    whole = modules(whole=True)
    for variable in (*READ, *BY_LIBRARIES):
        assert set(variable.readers) <= whole.keys(), variable.name


def test_readers_of_a_setting_are_found() -> None:
    assert readers("http.port") == ("gateway/app.py",)
    assert readers("http.thread_count") == ()
