"""`SquareBackend`: the number of IN, sent as OUT as many times as it says (B-18)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from penstock.backend import (
    Array,
    Backend,
    ConfigError,
    DataType,
    InferenceRequest,
    InferenceResponse,
    Input,
    InstanceContext,
    InvalidRequestError,
    ModelConfig,
    Outcome,
    Output,
    Tensor,
    Traits,
)


class SquareBackend(Backend):
    """Sends IN as OUT, n times for IN = n, never for n below 1.

    IN has the shape [1], or [1, 1] where the model batches.
    """

    traits = Traits(eager=True)

    @classmethod
    def check_config(cls, config: ModelConfig) -> None:
        if not config.decoupled:
            raise ConfigError(
                "square backend needs model_transaction_policy { decoupled: true }, "
                "since a request gets as many responses as IN says"
            )
        _check_tensor("input", "IN", config.input)
        _check_tensor("output", "OUT", config.output)

    async def initialize(self, context: InstanceContext) -> None:
        pass

    async def execute(self, requests: Sequence[InferenceRequest]) -> Sequence[Outcome]:
        return [_outcome(request) for request in requests]


def _outcome(request: InferenceRequest) -> Outcome:
    number = request.inputs["IN"]
    if number.shape not in ((1,), (1, 1)):
        return InvalidRequestError("unexpected shape for IN input")  # Triton's text
    # Its memory may be the client's, who may write into it.
    return _responses(number.numpy().copy())


async def _responses(number: Array) -> AsyncIterator[InferenceResponse]:
    for _ in range(int(number.item())):
        yield InferenceResponse({"OUT": Tensor.from_numpy(number)})


def _check_tensor(what: str, name: str, declared: Sequence[Input] | Sequence[Output]) -> None:
    found = [(tensor.name, tensor.data_type, tuple(tensor.dims)) for tensor in declared]
    if found != [(name, DataType.INT32, (1,))]:
        raise ConfigError(f"square backend expects one {what}, {name} TYPE_INT32 [ 1 ]")
