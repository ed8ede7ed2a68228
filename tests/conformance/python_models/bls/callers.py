"""The code of Python models that call other models: what they do with each request `x`."""

from __future__ import annotations

HEAD = """
    import asyncio
    import json
    import os
    import threading
    import time
    from concurrent.futures import ThreadPoolExecutor

    import numpy as np
    import triton_python_backend_utils as pb_utils


    def ask(model, x, **options):
        return pb_utils.InferenceRequest(
            model_name=model, requested_output_names=["Y"], inputs=[pb_utils.Tensor("X", x)],
            **options)


    def output(response):
        if response.has_error():
            error = response.error()
            raise pb_utils.TritonModelException(f"[{error.code()}] {error.message()}")
        return pb_utils.get_output_tensor_by_name(response, "Y").as_numpy()


    def answer(y, **options):
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", y)], **options)


    def x_of(request):
        return pb_utils.get_input_tensor_by_name(request, "X").as_numpy()

"""


CALLER = """
model = request.request_id()
response = ask(model, x, request_id="inner", correlation_id=5, flags=3, timeout=9_000_000,
               parameters={"from": "caller"}).exec()
y = output(response)
return answer(y, parameters={"seen": json.loads(response.parameters())["seen"]})
"""

# Every name in another form than `str`.
OTHER_TEXT = """
request = pb_utils.InferenceRequest(
    model_name=b"negate", request_id=np.bytes_(b"inner"), requested_output_names=(np.str_("Y"),),
    inputs=[pb_utils.Tensor(np.bytes_(b"X"), x)], parameters={np.str_("by"): np.str_("caller")})
response = request.exec()
if response.has_error():
    error = pb_utils.TritonError(response.error().message().encode(), response.error().code())
    return pb_utils.InferenceResponse(error=error)
seen = json.loads(json.loads(response.parameters())["seen"])
y = pb_utils.get_output_tensor_by_name(response, b"Y").as_numpy()
seen += [pb_utils.is_model_ready(b"negate", b"1"), pb_utils.is_model_ready(np.str_("nobody"))]
return answer(y, parameters={"seen": json.dumps(seen)})
"""

ASYNC = """
both = await asyncio.gather(*(ask("meeting", x + n).async_exec() for n in range(2)))
return answer(np.concatenate([output(response) for response in both]))
"""

# Two calls that are answered together only, each read by a plain `for`, which blocks the loop.
ASYNC_STREAMS = """
async def one(n):
    stream = await ask("meeting", x + n).async_exec(decoupled=True)
    return [output(response) for response in stream]
both = await asyncio.gather(one(0), one(1))
return answer(np.concatenate([y for stream in both for y in stream]))
"""

THREADS = """
with ThreadPoolExecutor(2) as pool:
    both = pool.map(lambda n: output(ask("meeting", x + n).exec()), range(2))
return answer(np.concatenate(list(both)))
"""

SUM = """
seen = []
for response in ask("repeat", x).exec(decoupled=True):
    if response.has_error():
        seen.append(-100)
    elif response.output_tensors():
        seen.append(output(response)[0])
return answer(np.array(seen, np.float32))
"""

ASYNC_SUM = """
seen = []
async for response in await ask("repeat", x).async_exec(decoupled=True):
    if response.output_tensors():
        seen.append(output(response)[0])
return answer(np.array(seen, np.float32))
"""

# Awaits the beginning of both before it reads one of them; the called model has one instance.
ASYNC_SUMS = """
asked = [ask("repeat", x).async_exec(decoupled=True) for _ in range(2)]
seen = []
for responses in await asyncio.gather(*asked):
    async for response in responses:
        if response.output_tensors():
            seen.append(output(response)[0])
return answer(np.array(seen, np.float32))
"""

# Reads forty streams at once, each by a coroutine of its own.
ASYNC_FAN = """
async def count():
    responses = await ask("repeat", x).async_exec(decoupled=True)
    return sum(len(response.output_tensors()) for response in responses)
return answer(np.array([sum(await asyncio.gather(*(count() for _ in range(40))))], np.float32))
"""

TAKE_THREE = """
responses = ask("repeat", np.zeros(0, np.float32)).exec(decoupled=True)
seen = [output(next(responses))[0] for _ in range(3)]
responses.cancel()
*rest, last = responses
return answer(np.array([*seen, len(last.output_tensors()), last.has_error()], np.float32))
"""

# Told of the cancellation by the called model itself; then by the server, for one in a queue.
CANCELLED = """
told = []
responses = ask("polite", x).exec(decoupled=True)
next(responses)
responses.cancel()
told += [response.error() for response in responses if response.has_error()]
first = ask("gated", x, request_id="first").exec(decoupled=True)
second = ask("gated", x, request_id="second").exec(decoupled=True)
second.cancel()
told += [response.error() for response in second]
open(os.path.join(os.path.dirname(self.args["model_repository"]), "gated", "first"), "w").close()
(response,) = first
seen = [f"{error.code().name}: {error.message()}" for error in told]
return answer(output(response), parameters={"told": json.dumps(seen)})
"""

POLITE = """
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def execute(self, requests):
            for request in requests:
                sender = request.get_response_sender()
                sender.send(pb_utils.InferenceResponse(
                    [pb_utils.Tensor("Y", request.inputs()[0].as_numpy())]))
                while not sender.is_cancelled():
                    pass
                error = pb_utils.TritonError("as you like", pb_utils.TritonError.CANCELLED)
                sender.send(pb_utils.InferenceResponse(error=error), flags=1)
"""

# The client's own loop, which waits for the threads of its executor when it ends.
OWN_LOOP = """
async def give_up(decoupled):
    call = ask("gated", x, request_id="never").async_exec(decoupled=decoupled)
    try:
        await asyncio.wait_for(call, 0.01)
    except asyncio.TimeoutError:
        return 1
return answer(np.array([asyncio.run(give_up(decoupled)) for decoupled in (False, True)],
                       np.float32))
"""

TAKE_NONE = """
two = os.path.join(os.path.dirname(self.args["model_repository"]), "repeat", "two")
for _ in range(20):
    responses = ask("repeat", np.zeros(0, np.float32)).exec(decoupled=True)
    while not os.path.exists(two):
        time.sleep(0.002)
    os.unlink(two)
    responses.cancel()
return answer(x)
"""

LEAVE_THE_LOOP = """
for response in ask("repeat", np.zeros(0, np.float32)).exec(decoupled=True):
    if output(response)[0] == 2:
        break
return answer(output(response)[:1])
"""

NO_PATIENCE = """
try:
    await asyncio.wait_for(ask("gated", x).async_exec(), 0.01)
except asyncio.TimeoutError:
    return answer(-x)
"""

OFTEN = """
total = 0
for n in range(300):
    total += output(ask("negate", np.full(1 << 14, 100, np.float32)).exec())[-1]
return answer(np.array([total], np.float32))
"""

LANGUAGE = """
text = pb_utils.get_input_tensor_by_name(request, "PROMPT")
sampling = json.dumps({"max_tokens": 8, "temperature": 0, "ignore_eos": True})
inputs = [pb_utils.Tensor("text_input", text.as_numpy()),
          pb_utils.Tensor("stream", np.array([True])),
          pb_utils.Tensor("sampling_parameters", np.array([sampling], np.object_))]
question = pb_utils.InferenceRequest(
    model_name="tiny_llm", requested_output_names=["text_output"], inputs=inputs)
parts = []
for response in question.exec(decoupled=True):
    if response.has_error():
        raise pb_utils.TritonModelException(response.error().message())
    tensor = pb_utils.get_output_tensor_by_name(response, "text_output")
    if tensor is not None:
        parts.append(tensor.as_numpy().reshape(-1)[0])
joined = np.array([b"|".join(parts)], np.object_)
return pb_utils.InferenceResponse([pb_utils.Tensor("TEXT", joined)])
"""

# Wants no more after the first words.
LANGUAGE_LESS = """
text = pb_utils.get_input_tensor_by_name(request, "PROMPT")
sampling = json.dumps({"max_tokens": 100, "temperature": 0, "ignore_eos": True})
inputs = [pb_utils.Tensor("text_input", text.as_numpy()),
          pb_utils.Tensor("stream", np.array([True])),
          pb_utils.Tensor("sampling_parameters", np.array([sampling], np.object_))]
responses = pb_utils.InferenceRequest(
    model_name="tiny_llm", requested_output_names=["text_output"], inputs=inputs
).exec(decoupled=True)
assert not next(responses).has_error()
responses.cancel()
*_, last = responses
told = np.array([last.error().code().name], np.object_)
return pb_utils.InferenceResponse([pb_utils.Tensor("TEXT", told)])
"""

# Calls itself until nothing is left.
SELF = """
if x[0] <= 0:
    return answer(x)
return answer(1 + output(ask(self.args["model_name"], x - 1).exec()))
"""

# Two that call each other until nothing is left.
OTHER = """
if x[0] <= 0:
    return answer(x)
other = {"ping": "pong", "pong": "ping"}[self.args["model_name"]]
return answer(1 + output(ask(other, x - 1).exec()))
"""

# The first of two versions, whose instances have the same names.
NEXT_VERSION = """
return answer(output(ask("two_versions", x, model_version=2).exec()))
"""

ASYNC_SELF = (
    SELF.replace("ask(", "await_(ask(")
    .replace("await_(", "(await ")
    .replace(".exec())", ".async_exec()))")
)

# Waits for a file, so that a test decides when it ends.
GATED = """
gate = os.path.join(self.args["model_repository"], request.request_id() or "gate")
open(gate + ".begun", "w").close()
while not os.path.exists(gate):
    time.sleep(0.002)
return answer(x)
"""

# A coroutine that blocks its event loop with a call.
BLOCKED_LOOP = (
    HEAD
    + """
    class TritonPythonModel:
        async def execute(self, requests):
            for request in requests:
                x, sender = x_of(request), request.get_response_sender()
                if x[0] > 0:
                    x = output(ask("gated", x, request_id="later").exec())
                flag = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
                sender.send(answer(x), flags=flag)
            return None
"""
)

ASKS_ON = (
    HEAD
    + """
    import threading


    class TritonPythonModel:
        def execute(self, requests):
            for request in requests:
                if x_of(request)[0] > 0:
                    threading.Thread(target=self.respond, args=(request,)).start()
                else:
                    self.respond(request)
            return None

        def respond(self, request):
            x, sender = x_of(request), request.get_response_sender()
            if x[0] > 0:
                x = output(ask("gated", x, request_id="at last").exec())
            sender.send(answer(x), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
)

AT_THE_WRONG_TIME = (
    HEAD
    + """
    class TritonPythonModel:
        def initialize(self, args):
            try:
                ask("negate", np.ones(1, np.float32)).exec()
            except pb_utils.TritonModelException as error:
                self.told = str(error)

        def execute(self, requests):
            text = np.array([self.told], np.object_)
            return [pb_utils.InferenceResponse([pb_utils.Tensor("TEXT", text)]) for _ in requests]
"""
)
