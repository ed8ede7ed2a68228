"""Answers with the number that it was sent, as many times as it says: none for zero."""

from collections.abc import AsyncIterator

from penstock.model import Model, Request, Response


class Square(Model):
    async def infer(self, request: Request) -> AsyncIterator[Response]:
        number = request["IN"]
        for _ in range(int(number[0])):
            yield Response({"OUT": number})
