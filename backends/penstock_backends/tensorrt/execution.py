"""`Execution`: runs the batches of one instance on the GPU, several in flight where asked for."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from penstock.backend import Array, InternalError, ModelConfig, ModelLoadError
from penstock_backends.tensorrt.cuda import CudaError, Device, address_of, installed
from penstock_backends.tensorrt.plan import (
    Plan,
    PlanTensor,
    Profile,
    Shape,
    runtime_log,
)
from penstock_backends.tensorrt.settings import GraphSpec, TensorRtSettings

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CapturedGraph:
    """A CUDA graph, the shapes of its inputs and outputs, and what may be filled up to them."""

    executable: Any
    shapes: Mapping[str, Shape]
    outputs: Mapping[str, Shape]
    bounds: Profile


@dataclass(eq=False, slots=True)
class Slot:
    """The memory of one batch in flight: by tensor on the GPU, and pinned memory of the host."""

    copied_in: Any
    computed: Any
    copied_out: Any
    """Events, in the order in which they happen."""
    addresses: dict[str, int] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    pinned: dict[str, Array] = field(default_factory=dict)
    """Of shape tensors, their values: they have no other memory."""
    allocators: dict[str, Any] = field(default_factory=dict)
    """Of outputs whose shapes depend on values."""
    graphs: dict[int, list[CapturedGraph]] = field(default_factory=lambda: defaultdict(list))
    """By profile."""


class Execution:
    """A context of the plan for each profile, and memory for the largest batches.

    Called on as many threads as there are slots.
    """

    _launching: ClassVar[dict[int, threading.Lock]] = defaultdict(threading.Lock)
    """By GPU, for the instances that take turns."""

    def __init__(
        self,
        name: str,
        config: ModelConfig,
        device: Device,
        plan: Plan,
        profiles: Sequence[Profile],
        settings: TensorRtSettings,
    ) -> None:
        self._name, self._device, self._plan = name, device, plan
        self._profiles, self._settings = profiles, settings
        self._stream, self._inputs = (device.stream(settings.priority) for _ in range(2))
        apart = settings.output_stream
        self._outputs = device.stream(settings.priority) if apart else self._stream
        shared = settings.device_blocking
        self._lock = self._launching[device.number] if shared else threading.Lock()
        self._largest = {profile.index: _largest(config, plan, profile) for profile in profiles}
        self._contexts = {profile.index: self._context(profile) for profile in profiles}
        self._idle = [self._slot() for _ in range(settings.slots)]
        self._own = threading.local()
        self.failed = False
        """Whether the GPU has failed: until the process ends, nothing runs on it any more."""
        device.drain(self._stream)
        for slot in self._idle:
            self._capture_all(slot)

    def close(self) -> None:
        """Give back contexts and memory; nothing runs any more."""
        self._contexts.clear()
        self._idle.clear()
        self._own = threading.local()
        self._device.close()

    # -- what is made once -------------------------------------------------------------------------

    def _context(self, profile: Profile) -> Any:
        strategies = installed("tensorrt").ExecutionContextAllocationStrategy
        strategy = getattr(strategies, self._settings.strategy)
        context = self._plan.engine.create_execution_context(strategy)
        if context is None:
            raise ModelLoadError(f"unable to create TensorRT context: {runtime_log().last_error()}")
        if not context.set_optimization_profile_async(profile.index, int(self._stream)):
            raise ModelLoadError(
                f"Can not set the specified optimization profile {profile.name}[{profile.index}]"
                f" for {self._name}: {runtime_log().last_error()}"
            )
        return context

    def _slot(self) -> Slot:
        """Memory for the largest batches of all profiles."""
        device, spins, plan = self._device, self._settings.busy_wait, self._plan
        slot = Slot(device.event(spins), device.event(spins), device.event(spins))
        for name in plan.shape_tensors:  # as aligned as TensorRT wants it
            known = plan.tensors[name]
            memory = device.pinned(max(known.size(known.dims), 1))
            slot.pinned[name] = memory.view(known.datatype.numpy).reshape(known.dims)
            slot.addresses[name] = address_of(memory)
        outputs = [self._shapes(slot, index, each) for index, each in self._largest.items()]
        for name, tensor in plan.tensors.items():
            if tensor.is_shape:
                continue
            if any(min(shapes.get(name, ()), default=0) < 0 for shapes in outputs):
                slot.allocators[name] = _allocator(device, slot)
            try:
                self._allocate(slot, tensor)
            except CudaError as error:
                side = "input" if tensor.is_input else "output"
                raise ModelLoadError(
                    f"unable to allocate memory for {side} '{name}' for {self._name}: {error}"
                ) from error
        return slot

    def _allocate(self, slot: Slot, tensor: PlanTensor) -> None:
        name = tensor.name
        if tensor.is_input:
            size = max(tensor.size(each[name]) for each in self._largest.values())
            pinned = self._settings.pinned_inputs
        else:
            size = max(int(one.get_max_output_size(name)) for one in self._contexts.values())
            pinned = self._settings.pinned_outputs
        slot.sizes[name] = max(size, 1)
        # Graphs are captured of zeros: any other numbers might be looked up beyond a table's end.
        slot.addresses[name] = self._device.memory(slot.sizes[name], self._stream)
        if pinned:
            slot.pinned[name] = self._device.pinned(slot.sizes[name])

    def _shapes(self, slot: Slot, index: int, asked: Mapping[str, Shape]) -> dict[str, Shape]:
        """The shapes of outputs, once the context has those of inputs and the slot the values."""
        context, tensors = self._contexts[index], self._plan.tensors
        for name, given in asked.items():
            if name in self._plan.shape_tensors:
                slot.pinned[name][...] = np.reshape(given, tensors[name].dims)
                accepted = context.set_tensor_address(name, slot.addresses[name])
            else:
                accepted = context.set_input_shape(name, given)
            if not accepted:
                raise InternalError(
                    f"trt failed to set binding dimension to [{','.join(map(str, given))}] for"
                    f" input '{name}' for {self._name}: {runtime_log().last_error()}"
                )
        try:
            missing = context.infer_shapes()
        except RuntimeError as error:
            raise InternalError(f"unable to infer shapes for {self._name}: {error}") from error
        if missing:
            raise InternalError(
                f"failed to specify the dimensions of all input bindings: {', '.join(missing)}"
            )
        names = tensors.keys() - self._plan.inputs.keys()
        shapes = {name: tuple(map(int, context.get_tensor_shape(name))) for name in names}
        for name, shape in shapes.items():
            size = tensors[name].size(shape)
            if name not in slot.allocators and size > slot.sizes.get(name, size):
                raise InternalError(
                    f"unexpected size for output '{name}', byte-size {slot.sizes[name]} is less"
                    f" than {size}"
                )
        return shapes

    # -- CUDA graphs -------------------------------------------------------------------------------

    def _capture_all(self, slot: Slot) -> None:
        if self._settings.graphs and (self._plan.shape_tensors or slot.allocators):
            logger.warning(
                "%s: CUDA graphs are not captured, as the plan has shape tensors, or outputs whose"
                " shapes depend on values",
                self._name,
            )
            return
        for spec in self._settings.graphs:
            for profile in self._profiles:
                self._capture(slot, profile, spec)

    def _capture(self, slot: Slot, profile: Profile, spec: GraphSpec) -> None:
        shapes = self._graph_shapes(profile, spec, spec.rows, spec.shapes)
        least = self._graph_shapes(profile, spec, spec.least_rows, spec.least_shapes)
        missing = shapes.keys() ^ self._plan.inputs.keys()
        graphs = slot.graphs[profile.index]
        try:
            if missing:
                raise InternalError(
                    f"inputs are not named, or unknown: {', '.join(sorted(missing))}"
                )
            if why := profile.misfit(shapes, self._plan.shape_tensors):
                raise InternalError(why)
            if any(graph.shapes == shapes for graph in graphs):
                raise InternalError("there is one already")
            outputs = self._shapes(slot, profile.index, shapes)
            # What TensorRT sets up in the first run of a shape is no part of the graph.
            self._enqueue(slot, profile)
            self._device.drain(self._stream)
            graph = self._device.captured(self._stream, lambda: self._enqueue(slot, profile))
        except (CudaError, InternalError) as error:
            where = f"batch size {spec.rows}, profile {profile.name}"
            logger.warning("%s: unable to record CUDA graph: %s (%s)", self._name, error, where)
            return
        ranges = {name: (least[name], shape, shape) for name, shape in shapes.items()}
        graphs.append(CapturedGraph(graph, shapes, outputs, replace(profile, ranges=ranges)))

    def _graph_shapes(
        self, profile: Profile, spec: GraphSpec, rows: int, shapes: Mapping[str, Shape]
    ) -> dict[str, Shape]:
        if not spec.shapes:
            best = {name: ranges[1] for name, ranges in profile.ranges.items()}
            return {name: (rows, *one[1:]) if rows else one for name, one in best.items()}
        known = self._plan.inputs
        return {
            # Ragged and computed inputs are given as a batch has them.
            name: (rows, *one) if rows and len(one) < len(known[name].dims) else one
            for name, one in shapes.items()
            if name in known
        }

    def _graph(self, slot: Slot, profile: Profile, asked: Mapping[str, Shape]) -> Any:
        """The graph of these shapes, or the smallest one that may run them; `None` if none may."""
        graphs = slot.graphs[profile.index]
        exact = next((graph for graph in graphs if graph.shapes == asked), None)
        if exact is not None or not self._settings.inexact_graphs:
            return exact
        larger = (graph for graph in graphs if not graph.bounds.misfit(asked, frozenset()))
        return min(larger, key=lambda graph: sorted(graph.shapes.values()), default=None)

    # -- each batch --------------------------------------------------------------------------------

    def room(self, name: str, shape: Shape) -> Array | None:
        """Pinned memory for an input of the next run on this thread, if there is enough."""
        tensor, size = self._plan.inputs[name], self._plan.inputs[name].size(shape)
        memory = None if tensor.is_shape else self._taken().pinned.get(name)
        if memory is None or size > len(memory):
            return None
        return memory[:size].view(tensor.datatype.numpy).reshape(shape)

    def run(
        self, feeds: Mapping[str, Array], asked: Mapping[str, Shape], names: Sequence[str]
    ) -> list[Array]:
        """The outputs `names` for inputs `asked` of these shapes, or values of shape tensors.

        Blocks; raises `InternalError`.
        """
        profile = self._profile(asked)
        slot = self._taken()
        try:
            self._device.use()
            return self._run(slot, profile, feeds, asked, names)
        except CudaError as error:
            self._drain()
            why = f"failed to run TRT inference for {self._name}: {error}"
            raise InternalError(why) from error
        except BaseException:
            self._drain()  # the memory is used again
            raise

    def _taken(self) -> Slot:
        """The slot of this thread."""
        slot: Slot | None = getattr(self._own, "slot", None)
        if slot is None:
            slot = self._own.slot = self._idle.pop()
        return slot

    def _drain(self) -> None:
        for stream in (self._inputs, self._stream, self._outputs):
            try:
                self._device.drain(stream)
            except CudaError:
                self.failed = True
                return

    def _profile(self, asked: Mapping[str, Shape]) -> Profile:
        """The profile that is optimised for the nearest shapes, among those that support these."""
        shape_tensors = self._plan.shape_tensors
        if fitting := [one for one in self._profiles if not one.misfit(asked, shape_tensors)]:
            return min(fitting, key=lambda profile: profile.distance(asked))
        among = ""
        if len(self._profiles) > 1:
            listed = "".join(f" {one.name}[{one.index}]" for one in self._profiles)
            among = (
                f"failed to find any Optimization Profile among [{listed}] to support the requested"
                " dimensions (or shape values): "
            )
        raise InternalError(
            f"{among}request specifies invalid shape for {self._name}. Error details: input"
            f" {self._profiles[0].misfit(asked, shape_tensors)}"
        )

    def _run(
        self,
        slot: Slot,
        profile: Profile,
        feeds: Mapping[str, Array],
        asked: Mapping[str, Shape],
        names: Sequence[str],
    ) -> list[Array]:
        device = self._device
        graph = self._graph(slot, profile, asked)
        held = [
            self._copy_in(slot, name, array, graph)
            for name, array in feeds.items()
            if name not in self._plan.shape_tensors
        ]
        device.record(slot.copied_in, self._inputs)
        with self._lock:
            exact = graph is not None and graph.shapes == asked
            shapes = graph.outputs if exact else self._shapes(slot, profile.index, asked)
            device.wait(self._stream, slot.copied_in)
            if graph is not None:
                device.launch(graph.executable, self._stream)
            else:
                self._enqueue(slot, profile)
            device.record(slot.computed, self._stream)
        device.wait(self._outputs, slot.computed)
        stored = graph.outputs if graph is not None else shapes
        found = [self._copy_out(slot, name, shapes, stored) for name in names]
        device.record(slot.copied_out, self._outputs)
        device.wait_for(slot.copied_out)
        del held  # memory that the GPU has read by now
        return [finish() for finish in found]

    def _copy_in(self, slot: Slot, name: str, array: Array, graph: CapturedGraph | None) -> Array:
        """Start to copy an input, from pinned memory where there is some; what is being read.

        For a graph it is filled up with zeros.
        """
        array, memory = np.asarray(array, order="C"), slot.pinned.get(name)
        if graph is not None:
            shape = self._plan.inputs[name].stored(graph.shapes[name])
            if shape != array.shape:
                array = np.pad(array, [(0, n - m) for n, m in zip(shape, array.shape, strict=True)])
        if memory is not None and address_of(array) != address_of(memory):
            memory = memory[: array.nbytes].view(array.dtype).reshape(array.shape)
            np.copyto(memory, array)
            array = memory
        self._device.copy_in(slot.addresses[name], array, self._inputs)
        return array

    def _enqueue(self, slot: Slot, profile: Profile) -> None:
        """Put the plan on the stream, with the shapes that the context has."""
        context = self._contexts[profile.index]
        for name, address in slot.addresses.items():
            if name in slot.allocators:
                context.set_output_allocator(name, slot.allocators[name])
            else:
                context.set_tensor_address(name, address)
        if not context.execute_async_v3(int(self._stream)):
            raise InternalError(
                f"unable to enqueue for inference {self._name}: {runtime_log().last_error()}"
            )

    def _copy_out(
        self, slot: Slot, name: str, shapes: Mapping[str, Shape], stored: Mapping[str, Shape]
    ) -> Callable[[], Array]:
        """Start to copy an output; what makes an array of it, once that is done."""
        tensor = self._plan.tensors[name]
        if tensor.is_shape:
            return slot.pinned[name].copy
        allocator = slot.allocators.get(name)
        whole = tensor.stored(stored[name] if allocator is None else allocator.shape)
        wanted = tensor.stored(shapes[name] if allocator is None else allocator.shape)
        size = tensor.size(whole)
        memory = slot.pinned.get(name)
        own = memory is None or size > len(memory)
        array = np.empty(size, np.uint8) if own or memory is None else memory[:size]
        self._device.copy_out(array, slot.addresses[name], self._outputs)
        view = array.view(tensor.datatype.numpy).reshape(whole)
        if wanted != whole:
            view = view[tuple(map(slice, wanted))]
        return lambda: np.asarray(view, order="C") if own else view.copy()


def _largest(config: ModelConfig, plan: Plan, profile: Profile) -> dict[str, Shape]:
    """The greatest shapes and values of a profile, as far as the configuration allows them."""
    largest = {}
    for name, (_, _, greatest) in profile.ranges.items():
        given = config.inputs_by_name.get(name)
        plain = given is not None and not given.allow_ragged_batch and config.max_batch_size
        if plain and greatest and name not in plan.shape_tensors:
            greatest = (min(greatest[0], config.max_batch_size), *greatest[1:])
        largest[name] = greatest
    return largest


def _allocator(device: Device, slot: Slot) -> Any:
    """The allocator of an output, which gives TensorRT its memory and is told its shape."""
    trt = installed("tensorrt")

    class Allocator(trt.IOutputAllocator):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            trt.IOutputAllocator.__init__(self)
            self.shape: Shape = ()

        def reallocate_output_async(
            self, tensor_name: str, memory: int, size: int, alignment: int, stream: int
        ) -> int:
            if size > (before := slot.sizes[tensor_name]):
                size = max(size, 2 * before)  # what was before stays until the end
                try:
                    slot.addresses[tensor_name] = device.memory(size)
                except CudaError as error:
                    logger.error("no memory for output '%s': %s", tensor_name, error)
                    return 0
                slot.sizes[tensor_name] = size
            return slot.addresses[tensor_name]

        def notify_shape(self, tensor_name: str, shape: Any) -> None:
            self.shape = tuple(map(int, shape))

    return Allocator()
