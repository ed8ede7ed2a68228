"""Adds and subtracts two vectors of 16 whole numbers, as the demo's `simple` does."""

from penstock.model import DataType, Input, Model, ModelConfig, Output, Request, Response


class Simple(Model):
    config = ModelConfig(
        max_batch_size=8,
        input=(
            Input("INPUT0", DataType.INT32, dims=(16,)),
            Input("INPUT1", DataType.INT32, dims=(16,)),
        ),
        output=(
            Output("OUTPUT0", DataType.INT32, dims=(16,)),
            Output("OUTPUT1", DataType.INT32, dims=(16,)),
        ),
    )

    async def infer(self, request: Request) -> Response:
        first, second = request["INPUT0"], request["INPUT1"]
        return Response({"OUTPUT0": first + second, "OUTPUT1": first - second})
