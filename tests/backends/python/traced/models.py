"""Code of the models: each answers with JSON about the trace that it sees."""

from __future__ import annotations

_IMPORTS = """\
import asyncio, json, os, threading, time
import numpy as np
import triton_python_backend_utils as pb_utils

def text_of(request):
    return pb_utils.get_input_tensor_by_name(request, "IN").as_numpy().flat[0].decode()

def answer(value):
    return pb_utils.InferenceResponse(
        [pb_utils.Tensor("OUT", np.array([json.dumps(value).encode()], np.object_))])

def call(id, **more):
    tensor = pb_utils.Tensor("IN", np.array([id.encode()], np.object_))
    return pb_utils.InferenceRequest(
        model_name="leaf", requested_output_names=["OUT"], inputs=[tensor], request_id=id, **more)

def value_of(response):
    if response.has_error():
        return response.error().message()
    return json.loads(pb_utils.get_output_tensor_by_name(response, "OUT").as_numpy()[0])
"""

LEAF = (
    _IMPORTS
    + """
class TritonPythonModel:
    def execute(self, requests):
        return [answer(request.trace().get_context()) for request in requests]
"""
)

CALLER = (
    _IMPORTS
    + """
class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            how = text_of(request)
            trace = {"trace": request.trace()} if "named" in how else {}
            answers.append(answer(value_of(call(how, **trace).exec())))
        return answers
"""
)

COROUTINE = (
    _IMPORTS
    + """
class TritonPythonModel:
    async def execute(self, requests):
        return [answer(await self.ask(request)) for request in requests]

    async def ask(self, request):
        calls = [call(f"{text_of(request)}{n}").async_exec() for n in range(2)]
        return [value_of(response) for response in await asyncio.gather(*calls)]
"""
)

DECOUPLED = (
    _IMPORTS
    + """
class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            threading.Thread(target=self.serve, args=(request,)).start()

    def serve(self, request):
        how, sender = text_of(request), request.get_response_sender()
        final = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
        if "late" in how:
            sender.send(answer(how), final)
            value_of(call(how, trace=request.trace()).exec())
        else:
            called = call(how, trace=request.trace()) if "named" in how else call(how)
            sender.send(answer(value_of(called.exec())))
            sender.send(flags=final)
"""
)

ASYNCIO = """\
import asyncio, json, logging
from pathlib import Path
from penstock.model import Context, DataType, Input, Model, ModelConfig, Output, Request, Response


class Asking(Model):
    async def load(self, context):
        self.context = context
        self.together = asyncio.Barrier(2)

    async def infer(self, request):
        how = request.text("IN")
        request.mark("LOOK_START")
        if how.startswith("pair"):
            await self.together.wait()
        if how.startswith("begin "):
            Path(how.removeprefix("begin ")).touch()
            await asyncio.Event().wait()
        if "call" in how or how.startswith("pair"):
            leaf = await self.context.infer("leaf", {"IN": [how]}, id=how)
            seen = json.loads(leaf.text("OUT"))
        else:
            seen = dict(request.trace_context)
        request.mark("LOOK_END")
        if how == "log":
            logging.getLogger("of.the.model").warning("served")
        return Response({"OUT": [json.dumps(seen)]})
"""

SPANS = (
    _IMPORTS
    + """
from opentelemetry import baggage, context, trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator as W3C

tracer = trace.get_tracer("of-the-model")

def parent_of(request):
    return W3C().extract(json.loads(request.trace().get_context() or "{}"))

class TritonPythonModel:
    def execute(self, requests):
        link = trace.Link(trace.SpanContext(0x17, 0x18, True))
        kind = trace.SpanKind.CLIENT
        with tracer.start_as_current_span("look", links=[link], kind=kind) as span:
            span.set_attribute("model.size", np.float32(2.5).item())
            span.set_attribute("texts", ["a", "b"])
            span.add_event("found", {"count": 3})
            with tracer.start_as_current_span("deeper"):
                seen = baggage.get_baggage("k")
        for request in requests:
            with tracer.start_as_current_span(text_of(request), parent_of(request)):
                pass
        if any(text_of(request) == "fail" for request in requests):
            with tracer.start_as_current_span("failing"):
                raise ValueError("no such luck")
        return [answer(seen) for request in requests]
"""
)

OWN_PROVIDER = (
    _IMPORTS
    + """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

own = TracerProvider()
trace.set_tracer_provider(own)

class TritonPythonModel:
    def execute(self, requests):
        with trace.get_tracer("m").start_as_current_span("mine") as span:
            parent = f"{span.parent.span_id:016x}" if span.parent else None
        return [answer([trace.get_tracer_provider() is own, parent]) for request in requests]
"""
)

THREAD_SPANS = (
    _IMPORTS
    + """
from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator as W3C

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            threading.Thread(target=self.serve, args=(request,)).start()

    def serve(self, request):
        sender, tracer = request.get_response_sender(), trace.get_tracer("m")
        parent = W3C().extract(json.loads(request.trace().get_context()))
        with tracer.start_as_current_span("around", parent):
            for n in range(2):
                with tracer.start_as_current_span(f"part{n}"):
                    sender.send(answer(n))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
)

ASYNCIO_SPANS = """\
import asyncio, json
from opentelemetry import trace
from penstock.model import Model, Request, Response

tracer = trace.get_tracer("m")


class Spans(Model):
    async def load(self, context):
        with tracer.start_as_current_span("load"):
            self.together = asyncio.Barrier(2)

    async def infer(self, request):
        id = request.text("IN")
        with tracer.start_as_current_span(f"first {id}"):
            await self.together.wait()
        with tracer.start_as_current_span(f"second {id}"):
            await asyncio.to_thread(self.work, id)
        return Response({"OUT": [json.dumps(id)]})

    def work(self, id):
        with tracer.start_as_current_span(f"thread {id}"):
            pass
"""

PLAIN_STREAM = """\
import json
from opentelemetry import trace
from penstock.model import Model, Request, Response


class Words(Model):
    def infer(self, request):
        with trace.get_tracer("m").start_as_current_span("words"):
            for word in request.text("IN").split():
                yield Response({"OUT": [json.dumps(word)]})
"""

MANY_SPANS = (
    _IMPORTS
    + """
from opentelemetry import trace

class TritonPythonModel:
    def execute(self, requests):
        for n in range(300):
            trace.get_tracer("m").start_span(f"{n}").end()
        return [answer(None) for request in requests]
"""
)

LOADED = (
    _IMPORTS
    + """
import sys

class TritonPythonModel:
    def execute(self, requests):
        return [answer("opentelemetry" in sys.modules) for request in requests]
"""
)

LATE_SPANS = (
    _IMPORTS
    + """
from opentelemetry import trace

class TritonPythonModel:
    async def execute(self, requests):
        for request in requests:
            asyncio.create_task(self.serve(request, request.get_response_sender()))

    async def serve(self, request, sender):
        final = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
        with trace.get_tracer("m").start_as_current_span("around"):
            sender.send(answer(0))
            while not sender.is_cancelled() and "cancel" in text_of(request):
                await asyncio.sleep(0.01)
            sender.send(answer(1), final)
            await asyncio.sleep(0.05)
"""
)

DYING = """\
import asyncio, os
from opentelemetry import trace
from penstock.model import Model


class Dying(Model):
    async def infer(self, request):
        request.mark("DOOMED")
        with trace.get_tracer("m").start_as_current_span("last"):
            if request.text("IN") == "wait":
                await asyncio.sleep(600)
            os._exit(7)
"""

CALLS_SPANS = (
    _IMPORTS
    + """
from opentelemetry import trace

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            with trace.get_tracer("m").start_as_current_span("outer"):
                tensor = pb_utils.get_input_tensor_by_name(request, "IN")
                called = pb_utils.InferenceRequest(
                    model_name="spans", requested_output_names=["OUT"], inputs=[tensor],
                    trace=request.trace())
                answers.append(answer(value_of(called.exec())))
        return answers
"""
)

TOGETHER = """\
import json
from opentelemetry import trace
from penstock.model import Model, Request, Response


class Together(Model):
    async def load(self, context):
        self.context = context

    async def infer_batch(self, requests):
        answers = []
        for request in requests:
            id = request.text("IN")
            named = {"scope": request.core.scope} if "named" in id else {}
            await self.context.infer("leaf", {"IN": [id]}, id=id, **named)
            answers.append(Response({"OUT": [[json.dumps(id)]]}))
        with trace.get_tracer("m").start_as_current_span("all"):
            return answers
"""
