"""Options that tune machinery of Triton which this server does not have.

Start scripts set them, so they are accepted; the log of the start says that they have no effect.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.settings import Settings
from penstock.settings.fields import default_value, value_of


@dataclass(frozen=True, slots=True)
class OptionWithoutEffect:
    """An option whose `field` has no reader, and why."""

    field: str
    flag: str
    reason: str


_POOLS = "tensors are in shared memory that the server shares with its model processes"

WITHOUT_EFFECT = (
    OptionWithoutEffect(
        "http.thread_count", "http-thread-count", "one event loop serves all endpoints"
    ),
    OptionWithoutEffect(
        "grpc.infer_thread_count", "grpc-infer-thread-count", "one event loop serves all endpoints"
    ),
    OptionWithoutEffect(
        "sagemaker.thread_count", "sagemaker-thread-count", "one event loop serves all endpoints"
    ),
    OptionWithoutEffect(
        "vertex.thread_count", "vertex-ai-thread-count", "one event loop serves all endpoints"
    ),
    OptionWithoutEffect(
        "grpc.infer_allocation_pool_size",
        "grpc-infer-allocation-pool-size",
        "requests and responses are not pooled",
    ),
    OptionWithoutEffect(
        "devices.pinned_memory_pool_byte_size", "pinned-memory-pool-byte-size", _POOLS
    ),
    OptionWithoutEffect("devices.cuda_memory_pool_byte_size", "cuda-memory-pool-byte-size", _POOLS),
    OptionWithoutEffect(
        "devices.cuda_virtual_address_size",
        "cuda-virtual-address-size",
        "the states of sequences are kept in host memory",
    ),
    OptionWithoutEffect(
        "devices.buffer_manager_thread_count",
        "buffer-manager-thread-count",
        "tensors are copied by the process that needs them",
    ),
    OptionWithoutEffect(
        "devices.peer_access",
        "enable-peer-access",
        "the server itself does not copy from one GPU to another",
    ),
)


OF_GRPCIO = OptionWithoutEffect(
    "grpc.keepalive.max_pings_without_data",
    "grpc-http2-max-pings-without-data",
    "the native transport pings as often as --grpc-keepalive-time says, with data or without",
)
"""An option of one transport."""


def without_effect(settings: Settings) -> Iterator[str]:
    """A line for each option that is set and has no effect."""
    of_transport = () if settings.grpc.transport == "grpcio" else (OF_GRPCIO,)
    for row in (*WITHOUT_EFFECT, *of_transport):
        if value_of(settings, row.field) != default_value(row.field):
            yield f"--{row.flag} has no effect: {row.reason}"
