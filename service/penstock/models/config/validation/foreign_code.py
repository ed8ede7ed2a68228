"""The rule about configurations of clients that may not bring code: they name none either."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from penstock.core.config import ModelConfig
from penstock.core.errors import UnsupportedError, shortened


def refuse_foreign_code(config: ModelConfig, own: Callable[[], ModelConfig | None]) -> None:
    """Refuse code and paths in a client's configuration that the operator's `own` does not name.

    A library of operators is run in the server, and an environment is a program; descriptors of
    `/proc` are files that the client itself may have filled. Raises `UnsupportedError`.
    """
    if not (named := set(_named(config))):
        return
    for field, value in sorted(named.difference(_named(own() or ModelConfig()))):
        raise UnsupportedError(
            f"{field} '{shortened(value)}' is refused in the configuration of a load request:"
            " clients may name code and paths only with --allow-model-upload=true, or where the"
            " calls of model-repository are restricted (--http-restricted-api,"
            " --grpc-restricted-protocol)"
        )


def _named(config: ModelConfig) -> Iterator[tuple[str, str]]:
    """Field and value of all that leads to files beside those of the model."""
    if config.model_operations is not None:
        for library in config.model_operations.op_library_filename:
            yield "op_library_filename", library
    for name, value in _parameters(config):
        if "/" in value or value in (".", ".."):
            yield f"parameter '{shortened(name)}'", value


def _parameters(config: ModelConfig) -> Iterator[tuple[str, str]]:
    """The parameters of the backend, and those of execution providers."""
    for name, parameter in config.parameters.items():
        yield name, parameter.string_value
    chosen = config.optimization and config.optimization.execution_accelerators
    if chosen:
        for one in (*chosen.gpu_execution_accelerator, *chosen.cpu_execution_accelerator):
            yield from one.parameters.items()
