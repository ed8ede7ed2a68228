"""The commands of this package, which `penstock` finds by its entry points in `penstock.commands`.

Those that talk to a running server have a module each here; each module of a command has `parser`,
which shell completion reads too, and `run`.
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module


@dataclass(frozen=True, slots=True)
class Command:
    """A command: what it does, the module that does it, imported only when it is used, and whether
    its first argument is a model.
    """

    summary: str
    module: str
    of_model: bool = True

    def run(self, arguments: Sequence[str]) -> int:
        """Run the command; the exit status."""
        status: int = import_module(self.module).run(arguments)
        return status

    def parser(self) -> ArgumentParser:
        """The parser of its command line."""
        made: ArgumentParser = import_module(self.module).parser()
        return made


TOP = Command(
    "Show models, queues, batches and latencies of a running server.", "penstock_client.top.command"
)
PERF = Command("Put a load on a server and measure it.", "penstock_client.perf.command")
TUNE = Command(
    "Search settings of a model: instances, batch sizes, queue delays, the engine's.",
    "penstock_client.tune.command",
)
INFER = Command(
    "Send one request to a model, and print its outputs.", "penstock_client.commands.infer"
)
GENERATE = Command(
    "Print what a language model generates, as it comes.", "penstock_client.commands.generate"
)
EMBED = Command("Print the vectors of texts.", "penstock_client.commands.embed")
MODELS = Command("List the models of a server.", "penstock_client.commands.models", of_model=False)
LOAD = Command("Load a model, or load it anew.", "penstock_client.commands.load")
UNLOAD = Command("Unload a model.", "penstock_client.commands.unload")
RELEASE = Command(
    "Show aliases, and move their traffic from model to model.",
    "penstock_client.commands.release",
    of_model=False,
)
STATS = Command(
    "Print requests, batches and mean times of models.", "penstock_client.commands.stats"
)
WAIT = Command("Wait until a server, and models, are ready.", "penstock_client.commands.wait")
