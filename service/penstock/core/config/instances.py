"""Instance groups: placement and number of a model's instances, and their rate limits."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from penstock.core.config.schema import ConfigPart, Int32, Int64, UInt32


@dataclass(frozen=True, slots=True)
class RateLimiterResource(ConfigPart):
    """`count` units of a named resource, from a pool of the whole server or of each device."""

    name: str = ""
    global_: bool = False
    count: UInt32 = 0


@dataclass(frozen=True, slots=True)
class ModelRateLimiter(ConfigPart):
    """Resources that an instance acquires to execute, and its weight; priority 0 counts as 1."""

    resources: tuple[RateLimiterResource, ...] = ()
    priority: UInt32 = 0


class InstanceKind(StrEnum):
    """The kind of device of an instance; `KIND_MODEL` leaves it to the backend."""

    KIND_AUTO = "KIND_AUTO"
    KIND_GPU = "KIND_GPU"
    KIND_CPU = "KIND_CPU"
    KIND_MODEL = "KIND_MODEL"


class SecondaryDeviceKind(StrEnum):
    """Accelerators that an instance may use beside its device."""

    KIND_NVDLA = "KIND_NVDLA"


@dataclass(frozen=True, slots=True)
class SecondaryDevice(ConfigPart):
    """An accelerator used in addition to the instance's device."""

    kind: SecondaryDeviceKind = SecondaryDeviceKind.KIND_NVDLA
    device_id: Int64 = 0


@dataclass(frozen=True, slots=True)
class InstanceGroup(ConfigPart):
    """Instances that share a placement; `count` is per GPU where the group has GPUs."""

    name: str = ""
    kind: InstanceKind = InstanceKind.KIND_AUTO
    count: Int32 = 0
    rate_limiter: ModelRateLimiter | None = None
    gpus: tuple[Int32, ...] = ()
    secondary_devices: tuple[SecondaryDevice, ...] = ()
    profile: tuple[str, ...] = ()
    passive: bool = False
    host_policy: str = ""

    def instance_name(self, number: int, device: int) -> str:
        """The name of one of its instances on a device, in logs and errors."""
        suffix = f"_gpu{device}" if self.kind is InstanceKind.KIND_GPU else ""
        return f"{self.name}_{number}{suffix}"

    def policy(self, device: int) -> str:
        """The name of the host policy of its instances on a device."""
        if self.host_policy:
            return self.host_policy
        if self.kind is InstanceKind.KIND_GPU:
            return f"gpu_{device}"
        return "model" if self.kind is InstanceKind.KIND_MODEL else "cpu"
