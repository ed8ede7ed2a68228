"""Options of models that are given as arguments, as in `penstock serve hf://OWNER/NAME`."""

import re

from penstock.cli import values
from penstock.cli.flags.flag import Flag, Group, text
from penstock.settings import Task


def device(value: str) -> str:
    """`cpu`, `gpu` or `gpu:<number>[,<number>]`."""
    if not re.fullmatch(r"cpu|gpu(:\d+(,\d+)*)?", value):
        raise values.ValueRefused(f"a device is cpu, gpu, or gpu:<number>[,<number>]. Got {value}")
    return value


def task(value: str) -> Task:
    """One of the tasks."""
    if value not in [*Task]:
        raise values.ValueRefused(f"a task is one of {', '.join(Task)}. Got {value}")
    return Task(value)


SOURCES = Group(
    "Models given as arguments",
    (
        text("name", "", "Name of the model; of several, each is given as <name>=<model>."),
        Flag(
            "task",
            "generate|embed|rerank|classify",
            task,
            "",
            "What models in the layout of Hugging Face are for, where their files do not say it.",
        ),
        text("device", "", "Device of the models: cpu, gpu or gpu:<number>[,<number>].", device),
    ),
)
"""Of `penstock serve` alone: `tritonserver` takes no models as arguments."""
