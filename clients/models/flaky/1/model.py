"""Refuses each request id twice with UNAVAILABLE and then answers with the number of attempts."""

from collections import Counter

from penstock.model import (
    DataType,
    Input,
    Model,
    ModelConfig,
    Output,
    Request,
    Response,
    UnavailableError,
)

FAILURES = 2


class Flaky(Model):
    config = ModelConfig(
        input=(Input("IN", DataType.INT32, dims=(1,)),),
        output=(Output("ATTEMPTS", DataType.INT32, dims=(1,)),),
    )

    def __init__(self) -> None:
        self._attempts = Counter[str]()

    async def infer(self, request: Request) -> Response:
        self._attempts[request.id] += 1
        attempts = self._attempts[request.id]
        if attempts <= FAILURES:
            raise UnavailableError(f"attempt {attempts} of request '{request.id}' is refused")
        return Response({"ATTEMPTS": attempts})
