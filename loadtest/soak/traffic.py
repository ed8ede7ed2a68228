"""Well-behaved clients: every answer is compared with what the request asks for."""

from __future__ import annotations

import asyncio
import json
import mmap
import os
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

import grpc
import numpy as np

from loadtest.soak.answers import (
    DECOUPLED,
    FORMULAS,
    StreamRequest,
    check_block,
    compare,
    compare_texts,
)
from loadtest.soak.ledger import CallError, Ledger, WrongAnswerError
from loadtest.soak.wire import PATIENCE, Array, GrpcClient, HttpClient, message, output
from penstock.protocol import grpc_service_pb2 as pb

_BATCHING = "batched", "steps"
_IN_STREAMS = "plain", "victim", "coro", "echo", "count", "repeat", "asker", "chain"
_SIZES = 1, 7, 16, 64, 64, 1024, 16 * 1024, 256 * 1024


@dataclass(slots=True)
class Factors:
    """The factors that `changing` may have at a time; each from its load on."""

    valid: list[tuple[float, float, float]] = field(default_factory=list)

    def begin(self, factor: float) -> None:
        """A load with this factor begins."""
        self.valid.append((factor, time.monotonic(), inf))

    def end_others(self, factor: float) -> None:
        """A load is done: who was admitted before may still have the factor of before."""
        now = time.monotonic()
        self.valid = [
            (other, since, until if other == factor else min(until, now))
            for other, since, until in self.valid
        ]

    def may_be(self, factor: float, begun: float) -> bool:
        """Whether a call that began then may have this factor now."""
        return any(other == factor and until >= begun for other, _, until in self.valid)


@dataclass(slots=True)
class Traffic:
    """Clients of all kinds; each method makes one call, or one conversation."""

    ledger: Ledger
    grpc: GrpcClient
    http: HttpClient
    chance: random.Random
    factors: Factors = field(default_factory=Factors)
    sequences: int = 0
    _hits: int = 0

    async def checked(self, kind: str, model: str, call: Awaitable[object]) -> bool:
        """Await a call and write down what became of it; whether its answer was right."""
        begun = time.monotonic()
        try:
            await asyncio.wait_for(call, PATIENCE + 5)
        except CallError as error:
            self.ledger.failed(kind, model, begun, error)
        except (WrongAnswerError, ValueError, KeyError) as error:
            self.ledger.wrong(kind, f"{model}: {error!r}")
        except TimeoutError:
            self.ledger.lost(kind, model)
        except OSError as error:
            self.ledger.failed(kind, model, begun, CallError("connection", str(error)))
        else:
            self.ledger.right(kind)
            return True
        return False

    def tensor(self, model: str) -> Array:
        """A random input of a model that has a formula."""
        if model == "cached":
            self._hits += 1
            return np.full(16, self._hits % 50, np.float32)
        size = 16 if model in _BATCHING else self.chance.choice(_SIZES)
        shape = (1, size) if model in _BATCHING else (size,)
        seed = self.chance.getrandbits(32)
        return np.random.default_rng(seed).integers(-9999, 9999, shape).astype(np.float32)

    # -- one call ------------------------------------------------------------------------------

    async def unary(self) -> None:
        if self.chance.random() < 0.15:
            await self.checked("gRPC unary", "changing", self.ask_changing())
            return
        model = self.chance.choice(list(FORMULAS))
        await self.checked("gRPC unary", model, self.ask(model))

    async def ask(self, model: str) -> None:
        """`ModelInfer`."""
        x = self.tensor(model)
        response = await self.grpc.call("ModelInfer", message(model, {"IN": x}))
        compare(output(response, "OUT"), FORMULAS[model](x))

    async def ask_uncached(self) -> None:
        """A request to `cached` that no other has made."""
        self._hits += 1
        await self._ask_with("cached", np.full(15, self._hits, np.float32))

    async def ask_changing(self) -> None:
        """The factor must be one of those that the model has had since the call began."""
        begun, x = time.monotonic(), self.tensor("changing")
        response = await self.grpc.call("ModelInfer", message("changing", {"IN": x}))
        factor = output(response, "FACTOR")[0]
        if not self.factors.may_be(float(factor), begun):
            raise WrongAnswerError(f"factor {factor}, not one of {self.factors.valid[-3:]}")
        compare(output(response, "OUT"), x * factor)

    async def http_json(self) -> None:
        model = self.chance.choice(list(FORMULAS))
        await self.checked("HTTP JSON", model, self._ask_http(model, self.http.infer_json))

    async def http_binary(self) -> None:
        model = self.chance.choice(list(FORMULAS))
        await self.checked("HTTP binary", model, self._ask_http(model, self.http.infer_binary))

    async def _ask_http(
        self, model: str, infer: Callable[[str, Mapping[str, Array]], Awaitable[dict[str, Array]]]
    ) -> None:
        x = self.tensor(model)[..., :4096]
        found = await infer(model, {"IN": x})
        compare(found["OUT"], FORMULAS[model](x))

    async def large(self) -> None:
        """16 MiB there and back, on a thread of the server and in a model process."""
        for model in ("echo", "plain"):
            x = np.arange(4 << 20, dtype=np.float32)
            await self.checked("gRPC unary, 16 MiB", model, self._ask_with(model, x))

    async def _ask_with(self, model: str, x: Array) -> None:
        response = await self.grpc.call("ModelInfer", message(model, {"IN": x}))
        compare(output(response, "OUT"), FORMULAS[model](x))

    # -- text ----------------------------------------------------------------------------------

    async def generate(self) -> None:
        await self.checked("HTTP generate", "shout", self.ask_shout())

    async def ask_shout(self) -> None:
        text = self._text()
        body = json.dumps({"TEXT": text})
        _, reply = await self.http.post("/v2/models/shout/generate", body)
        compare_texts(json.loads(reply)["OUT"], text.upper())

    async def generate_stream(self) -> None:
        await self.checked("HTTP generate_stream", "spell", self.ask_spell())

    async def ask_spell(self) -> None:
        text, found = self._text(), ""
        body = json.dumps({"TEXT": text})
        async for event in self.http.events("/v2/models/spell/generate_stream", body):
            if "error" in event:
                raise CallError("event", event["error"])
            found += event["OUT"]
        compare_texts(found, text)

    def _text(self) -> str:
        return "".join(self.chance.choices("abcdefghijklmnop", k=self.chance.randrange(3, 30)))

    # -- streams -------------------------------------------------------------------------------

    async def stream(self) -> None:
        """A `ModelStreamInfer` call with eight requests to several models."""
        asked = {f"s{n}": self._stream_request(self.chance.choice(_IN_STREAMS)) for n in range(8)}
        begun, kind = time.monotonic(), "gRPC stream"
        ended: Exception = CallError("end", "the stream ended without an answer")
        try:
            await asyncio.wait_for(self._converse(asked), PATIENCE + 5)
        except (CallError, TimeoutError) as error:
            ended = error
        except (WrongAnswerError, ValueError, KeyError) as error:
            self.ledger.wrong(kind, repr(error))
        for id, one in asked.items():
            if one.wrong:
                self.ledger.wrong(kind, f"{one.model} {id}: {one.wrong}")
            elif one.done:
                self.ledger.right(kind)
            elif one.error:
                self.ledger.failed(kind, one.model, begun, CallError("in stream", one.error))
            elif isinstance(ended, CallError):
                self.ledger.failed(kind, one.model, begun, ended)
            else:
                self.ledger.lost(kind, f"{one.model} {id}")

    def _stream_request(self, model: str) -> StreamRequest:
        count = self.chance.randrange(20)
        x = np.zeros(0) if model in DECOUPLED else self.tensor(model)
        return StreamRequest(model, count, x)

    async def _converse(self, asked: dict[str, StreamRequest]) -> None:
        once = [id for id, one in asked.items() if not one.decoupled]
        requests = [one.request(id) for id, one in asked.items()]
        async for response in self.grpc.responses(requests):
            id = response.infer_response.id
            asked[id].take(response)
            if not asked[id].decoupled and once.pop(0) != id:
                raise WrongAnswerError(f"{id} is answered out of its turn")

    async def ask_count(self) -> None:
        """One request for numbers, in a stream of its own."""
        asked = self._stream_request("count")
        await self._converse({"p": asked})
        if asked.error or not asked.done:
            raise CallError("in stream", asked.error or "no final response")
        if asked.wrong:
            raise WrongAnswerError(asked.wrong)

    async def read_numbers(
        self,
        count: int,
        *,
        pause: float = 0.0,
        client: GrpcClient | None = None,
        leave: Callable[[], object] | None = None,
    ) -> None:
        """Read so many blocks of the stream without end, then cancel it, or leave otherwise."""
        start = self.chance.randrange(1 << 20)
        request = message("drip", {"IN": np.array([start], np.int32)})
        call = (client or self.grpc).stream([request])
        try:
            for number in range(start, start + count):
                await asyncio.sleep(pause)
                check_block(await call.read(), number)
        except grpc.aio.AioRpcError as error:
            raise CallError(error.code().name, error.details() or "") from None
        finally:
            (leave or call.cancel)()

    # -- sequences -----------------------------------------------------------------------------

    async def sequence(self) -> None:
        """Six requests with one correlation id; the sum is the proof of their order."""
        self.sequences += 1
        id, total, begun = self.sequences, 0, time.monotonic()
        for step in range(6):
            x = self.chance.randrange(1000)
            total += x
            request = message("sums", {"X": np.array([[x]], np.int32)})
            request.parameters["sequence_id"].int64_param = id
            request.parameters["sequence_start"].bool_param = step == 0
            request.parameters["sequence_end"].bool_param = step == 5
            if not await self._ask_sums(request, total, begun):
                return

    async def ask_new_sum(self) -> None:
        """A sequence of one request."""
        self.sequences += 1
        request = message("sums", {"X": np.array([[5]], np.int32)})
        request.parameters["sequence_id"].int64_param = self.sequences
        for name in ("sequence_start", "sequence_end"):
            request.parameters[name].bool_param = True
        response = await self.grpc.call("ModelInfer", request)
        compare(output(response, "Y"), np.array([[5]], np.int32))

    async def _ask_sums(self, request: pb.ModelInferRequest, total: int, begun: float) -> bool:
        """Errors count from the beginning of the sequence: its instance may have died since."""
        kind = "gRPC sequence"
        try:
            response = await self.grpc.call("ModelInfer", request)
            compare(output(response, "Y"), np.array([[total]], np.int32))
        except CallError as error:
            self.ledger.failed(kind, "sums", begun, error)
        except WrongAnswerError as error:
            self.ledger.wrong(kind, str(error))
        except TimeoutError:
            self.ledger.lost(kind, "sums")
        else:
            self.ledger.right(kind)
            return True
        return False

    # -- shared memory -------------------------------------------------------------------------

    async def shared_memory(self) -> None:
        """Ten calls whose tensors lie in a region that is registered for them."""
        self.sequences += 1
        name, size = f"soak-{os.getpid()}-{self.sequences}", 64 * 1024
        path = Path("/dev/shm") / name
        with path.open("w+b") as file:
            file.truncate(2 * size)
            memory = np.frombuffer(mmap.mmap(file.fileno(), 2 * size), np.float32)
        try:
            region = pb.SystemSharedMemoryRegisterRequest(
                name=name, key=f"/{name}", byte_size=2 * size
            )
            await self.grpc.call("SystemSharedMemoryRegister", region)
            for _ in range(10):
                model = self.chance.choice(("plain", "echo", "victim"))
                call = self._ask_region(model, name, memory, size)
                await self.checked("gRPC shared memory", model, call)
            leave = pb.SystemSharedMemoryUnregisterRequest(name=name)
            await self.grpc.call("SystemSharedMemoryUnregister", leave)
        except CallError as error:
            self.ledger.failed("gRPC shared memory", "regions", time.monotonic(), error)
        finally:
            path.unlink()

    async def _ask_region(self, model: str, region: str, memory: Array, size: int) -> None:
        elements = self.chance.choice((16, size // 4))
        x = np.random.default_rng(self.chance.getrandbits(32)).random(elements, np.float32)
        memory[:elements] = x
        memory[size // 4 :] = -1
        request = pb.ModelInferRequest(model_name=model)
        given = request.inputs.add(name="IN", datatype="FP32", shape=[elements])
        wanted = request.outputs.add(name="OUT")
        for tensor, offset in ((given, 0), (wanted, size)):
            tensor.parameters["shared_memory_region"].string_param = region
            tensor.parameters["shared_memory_byte_size"].int64_param = elements * 4
            tensor.parameters["shared_memory_offset"].int64_param = offset
        await self.grpc.call("ModelInfer", request)
        compare(memory[size // 4 : size // 4 + elements], FORMULAS[model](x))

    # -- looking on ----------------------------------------------------------------------------

    async def poll(self) -> None:
        """Health, metadata, index, statistics and metrics in turns."""
        looks: list[Callable[[], Awaitable[object]]] = [
            self._metrics,
            lambda: self.http.get("/v2/health/live"),
            lambda: self.http.get("/v2/models/stats"),
            lambda: self.http.post("/v2/repository/index", "{}"),
            lambda: self.grpc.call("ModelStatistics", pb.ModelStatisticsRequest()),
            lambda: self.grpc.call("RepositoryIndex", pb.RepositoryIndexRequest()),
            lambda: self.grpc.call("ModelMetadata", pb.ModelMetadataRequest(name="plain")),
            lambda: self.grpc.call("ModelConfig", pb.ModelConfigRequest(name="batched")),
            self._log_settings,
        ]
        await self.checked("polls and settings", "server", self.chance.choice(looks)())

    async def _metrics(self) -> None:
        for line in (await self.http.metrics()).splitlines():
            if not line.startswith("#"):
                float(line.rpartition(" ")[2])

    async def _log_settings(self) -> None:
        request = pb.LogSettingsRequest()
        request.settings["log_verbose_level"].uint32_param = self.chance.choice((0, 0, 1))
        await self.grpc.call("LogSettings", request)
