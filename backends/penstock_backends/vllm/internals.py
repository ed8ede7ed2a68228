"""All that this backend does to vLLM's inside, a function or a small class for each touch.

Inside is what is replaced, written to or read below vLLM's public objects: its arguments, methods
of `AsyncLLM`, parameters, outputs, registries. `TOUCHES` has the names that are touched, and what
is done where the installed vLLM lacks one of them: its public API serves, or it stays as it is.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import logging
import sys
import traceback
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial, wraps
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, Final

from penstock.backend import UnsupportedError
from penstock_backends.vllm.output_owners import NOBODY, OWNER
from penstock_backends.vllm.statistics import VllmStatistics

logger = logging.getLogger(__name__)

# -- what is there ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Touch:
    """Names that a touch needs, as `module:Class.attribute`, and what is where one is missing."""

    names: tuple[str, ...]
    otherwise: str


_PROCESSOR: Final = "vllm.v1.engine.output_processor:"
_SERVING: Final = "vllm.entrypoints.openai."

TOUCHES: Final[dict[str, Touch]] = {
    "outputs": Touch(
        (
            "vllm.v1.engine.async_llm:AsyncLLM.output_processor",
            f"{_PROCESSOR}OutputProcessor.add_request",
            f"{_PROCESSOR}OutputProcessor.process_outputs",
            f"{_PROCESSOR}OutputProcessor.request_states",
            f"{_PROCESSOR}OutputProcessor.log_stats",
            f"{_PROCESSOR}RequestState.external_req_id",
            f"{_PROCESSOR}RequestState.is_prefilling",
        ),
        "wasted tokens are not counted, and times have no tenant",
    ),
    "push": Touch(
        (
            "vllm.v1.engine.async_llm:AsyncLLM.add_request",
            f"{_PROCESSOR}RequestOutputCollector.request_id",
            f"{_PROCESSOR}RequestOutputCollector.put",
            f"{_PROCESSOR}RequestOutputCollector.get_nowait",
        ),
        "a task reads the outputs of each request, which is slower",
    ),
    "render": Touch(
        ("vllm.renderers.base:BaseRenderer.render_cmpl_async",),
        "vLLM makes the tokens of prompts as it adds requests",
    ),
    "start": Touch(
        (
            "vllm.envs:VLLM_WORKER_MULTIPROC_METHOD",
            "vllm.v1.engine.core:EngineCoreProc.run_engine_core",
            "vllm.v1.executor.multiproc_executor:WorkerProc.worker_main",
            "cloudpickle:register_pickle_by_value",
        ),
        "of a failed start, the log alone has the reason",
    ),
    "media": Touch(
        (
            "vllm.renderers.base:BaseRenderer.get_mm_processor",
            "vllm.multimodal.processing.context:BaseProcessingInfo.allowed_mm_limits",
        ),
        "vLLM itself says which media a model does not take",
    ),
    "schemas": Touch(
        ("vllm.v1.structured_output.backend_xgrammar:has_xgrammar_unsupported_json_features",),
        "white space and numbers of JSON may go on",
    ),
    "adapters": Touch(
        (f"{_SERVING}models.serving:OpenAIServingModels.lora_requests",),
        "vLLM logs the adapter of each exchange",
    ),
    "parsers": Touch(
        (
            f"{_SERVING}chat_completion.serving:OpenAIServingChat.parser_cls",
            f"{_SERVING}responses.serving:OpenAIServingResponses.parser",
            "vllm.parser.abstract_parser:Parser.tool_parser_cls",
            "vllm.parser.abstract_parser:Parser.parse_delta",
            "vllm.parser.abstract_parser:DeltaMessage",
        ),
        "streams lack text that a parser of tool calls has held back",
    ),
}


class Inside:
    """Which of the touches the installed vLLM has all names for; the log tells of the others."""

    def __init__(self, touches: Mapping[str, Touch] = TOUCHES) -> None:
        lacking = {key: names for key, one in touches.items() if (names := missing(one.names))}
        self._lacks = frozenset(lacking)
        if lacking:
            logger.warning(
                "the installed vLLM has no %s: %s",
                ", ".join(name for names in lacking.values() for name in names),
                "; ".join(touches[key].otherwise for key in lacking),
            )

    def has(self, touch: str) -> bool:
        """Whether this touch can be made."""
        return touch not in self._lacks


def missing(names: Iterable[str]) -> list[str]:
    """Those of the names that the installed vLLM does not have."""
    return [name for name in names if not _is_there(name)]


def _is_there(name: str) -> bool:
    module, _, path = name.partition(":")
    *outer, last = path.split(".")
    try:
        found: Any = import_module(module)
    except ImportError:
        return False
    for one in outer:
        found = getattr(found, one, None)
    return hasattr(found, last) or last in _names_of_constructor(found)


def _names_of_constructor(kind: Any) -> Collection[str]:
    """Names in a constructor, such as those of the attributes that it sets."""
    code = getattr(inspect.unwrap(kind.__init__), "__code__", None)
    return () if code is None else code.co_names


# -- requests --------------------------------------------------------------------------------------


def watch_outputs(llm: Any, statistics: VllmStatistics) -> None:
    """From now on count the tokens of late outputs as wasted, and note the owners of others.

    Every output passes vLLM's output processor. Those of requests that are over are dropped there
    without a word, as the engine's process is a step ahead of an abort, or more; times of the
    others are reported without their requests.
    """
    processor = llm.output_processor
    add, process = processor.add_request, processor.process_outputs
    reports = processor.log_stats

    def adding(request: Any, *more: Any, **named: Any) -> Any:
        added = add(request, *more, **named)
        if (owner := OWNER.get()) != NOBODY:
            processor.request_states[request.request_id].owner = owner
        return added

    def watching(outputs: Any, *more: Any, **named: Any) -> Any:
        known = processor.request_states
        for output in outputs:
            if (state := known.get(output.request_id)) is None:
                statistics.wasted_tokens += len(output.new_token_ids)
            elif reports:
                statistics.owners.note(state)
        return process(outputs, *more, **named)

    processor.add_request, processor.process_outputs = adding, watching


Put = Callable[[Any], None]
"""Takes one `RequestOutput`, or the exception that ends the request."""

_TASKS: set[asyncio.Task[None]] = set()


class PushedRequest:
    """A request that vLLM has, which calls `put` in the place of vLLM's collector.

    That one sets an event, for which a task waits that runs a generator; here an output is handled
    where vLLM makes it, and there is neither.
    """

    def __init__(self, llm: Any, collector: Any, put: Put) -> None:
        self._llm = llm
        self._id = collector.request_id
        collector.put = put
        if (early := _early(collector)) is not None:
            put(early)

    def abort(self) -> None:
        """Have the engine stop; outputs are put until it has, and one without tokens then."""
        _keep(asyncio.get_running_loop().create_task(self._abort()))

    async def _abort(self) -> None:
        if self._llm.errored:
            return  # all requests have ended with it
        try:
            await self._llm.abort(self._id, internal=True)
        except Exception:  # vLLM's own, of any kind
            logger.exception("vLLM could not abort a request")


class ReadRequest:
    """The same by the public API: a task reads the generator of a request's outputs."""

    def __init__(self, outputs: AsyncGenerator[Any, None], put: Put) -> None:
        self._task = asyncio.get_running_loop().create_task(_read_outputs(outputs, put))
        _keep(self._task)

    def abort(self) -> None:
        """Have the engine stop; nothing is put from now on."""
        self._task.cancel()


def _early(collector: Any) -> Any:
    """The output or exception that came while the request was added; `None` without one."""
    try:
        return collector.get_nowait()
    except Exception as error:
        return error


async def _read_outputs(outputs: AsyncGenerator[Any, None], put: Put) -> None:
    try:
        async with aclosing(outputs):
            async for output in outputs:
                put(output)
    except Exception as error:  # vLLM's own; one without a text stands for its cause
        put(error if str(error) else error.__cause__ or error)


def _keep(task: asyncio.Task[None]) -> None:
    """Hold a task until it ends: the event loop by itself does not."""
    _TASKS.add(task)
    task.add_done_callback(_TASKS.discard)


async def render(llm: Any, prompt: Any) -> Any:
    """The prompt in tokens."""
    (one,) = await llm.renderer.render_cmpl_async([prompt])
    return one


# -- the processes of an engine that starts --------------------------------------------------------

_LONGEST: Final = 4096
"""Characters of an error; those of some hold whole configurations."""


@contextmanager
def noted_failure() -> Iterator[Callable[[], str]]:
    """Yields a function that returns the first error of an engine started meanwhile, else ''.

    vLLM's own error, in the process that waits, says no more than `See root cause above`. Works
    where its processes are spawned, as they are unless the operator says otherwise.
    """
    if import_module("vllm.envs").VLLM_WORKER_MULTIPROC_METHOD != "spawn":
        yield str
        return
    process = import_module("vllm.v1.engine.core").EngineCoreProc
    own = process.run_engine_core
    with TemporaryDirectory(prefix="penstock-") as folder:
        path = Path(folder) / "failure"
        process.run_engine_core = _ByValue(partial(run_engine_core, str(path), _Uncollected()))
        try:
            yield partial(_read_failure, path)
        finally:
            process.run_engine_core = staticmethod(own)


def _read_failure(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


@contextmanager
def uncollected() -> Iterator[None]:
    """Import what stays without looking for garbage in it, which takes a fifth of the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


class _Uncollected:
    """Begins `uncollected` where it is unpickled, before the arguments whose modules are imported
    for that; what is unpickled is `None`.
    """

    def __reduce__(self) -> Any:
        return gc.disable, ()


class _ByValue:
    """A function that is sent to a process as its code: those of an engine do not have ours."""

    def __init__(self, function: Callable[..., None]) -> None:
        self._function = function

    def __reduce__(self) -> Any:
        cloudpickle = import_module("cloudpickle")
        here = sys.modules.get(__name__)  # not there in such a process, which has the code alone
        if here is None:
            return cloudpickle.loads, (cloudpickle.dumps(self._function),)
        cloudpickle.register_pickle_by_value(here)
        try:
            return cloudpickle.loads, (cloudpickle.dumps(self._function),)
        finally:
            cloudpickle.unregister_pickle_by_value(here)


def run_engine_core(path: str, _: object, *arguments: Any, **named: Any) -> None:
    """The function of the engine's process: vLLM's own, whose workers are begun by `run_worker`."""
    with uncollected():
        engine = import_module("vllm.v1.engine.core").EngineCoreProc
        worker = import_module("vllm.v1.executor.multiproc_executor").WorkerProc
    _note_errors(engine, path)
    worker.worker_main = _ByValue(partial(run_worker, path, _Uncollected()))
    engine.run_engine_core(*arguments, **named)


def run_worker(path: str, _: object, *arguments: Any, **named: Any) -> None:
    """The function of a worker's process: vLLM's own, with its errors noted."""
    with uncollected():
        worker = import_module("vllm.v1.executor.multiproc_executor").WorkerProc
    _note_errors(worker, path)
    worker.worker_main(*arguments, **named)


def _note_errors(process: Any, path: str) -> None:
    """Have the errors of the class's constructor noted."""
    start = process.__init__

    @wraps(start)
    def noting(self: Any, *arguments: Any, **named: Any) -> None:
        try:
            start(self, *arguments, **named)
        except Exception as error:
            _note(error, path)
            raise

    process.__init__ = noting


def _note(error: Exception, path: str) -> None:
    """Write an error to a file that is not there yet: a worker's comes before the engine's."""
    text = "".join(traceback.format_exception_only(error)).strip()
    with suppress(OSError), open(path, "x", encoding="utf-8", errors="replace") as file:
        file.write(text[:_LONGEST])


# -- the model's facts -----------------------------------------------------------------------------


def media_limits(llm: Any) -> Mapping[str, int | None]:
    """The media that a model takes, and how many of each in a prompt; `None` for any number."""
    return dict(llm.renderer.get_mm_processor().info.allowed_mm_limits)


def xgrammar_keeps_to(schema: Any) -> bool:
    """Whether vLLM has xgrammar keep to a schema; others it gives to another library."""
    backend = import_module("vllm.v1.structured_output.backend_xgrammar")
    return not backend.has_xgrammar_unsupported_json_features(schema)


# -- the OpenAI application ------------------------------------------------------------------------

_PLACES: Final = {
    "make_arg_parser": ("common.cli_args", "launchers.cli_args", "openai.cli_args"),
    "build_app": ("launchers.app", "openai.api_server"),
    "init_app_state": ("launchers.api_server.app_state", "openai.api_server"),
}
"""Modules below `vllm.entrypoints` by function, the newest first."""

PARAMETERS: Final = {
    "make_arg_parser": ("parser",),
    "build_app": ("args", "supported_tasks", "model_config"),
    "init_app_state": ("engine_client", "state", "args", "supported_tasks"),
}


@dataclass(frozen=True, slots=True)
class EntryPoints:
    """The functions that make vLLM's application, where it has them as expected."""

    make_arg_parser: Callable[..., Any]
    build_app: Callable[..., Any]
    init_app_state: Callable[..., Any]

    @classmethod
    def find(cls, parameters: Mapping[str, tuple[str, ...]] = PARAMETERS) -> EntryPoints:
        """Import them, which takes a second; raises `UnsupportedError` for what does not fit."""
        return cls(**{name: _function(name, of) for name, of in parameters.items()})


def _function(name: str, parameters: tuple[str, ...]) -> Callable[..., Any]:
    for module in _PLACES[name]:
        try:
            found = getattr(import_module(f"vllm.entrypoints.{module}"), name, None)
        except ImportError:
            continue
        if callable(found) and tuple(inspect.signature(found).parameters) == parameters:
            return found  # type: ignore[no-any-return]
    version = getattr(import_module("vllm"), "__version__", "")
    raise UnsupportedError(f"vLLM {version} has no {name}({', '.join(parameters)})")


def outlive_errors(state: Any) -> None:
    """Have vLLM's handler of the engine's errors, which tells its server to exit, tell nobody.

    Ours restarts the process.
    """
    state.server = SimpleNamespace(should_exit=False)


class NamedAdapters:
    """The adapters that vLLM's application knows, by the names that requests give the model.

    `written`: whether to its own dictionary; else by what its routes for adapters call, which has
    the engine add each, though it has them.
    """

    def __init__(self, state: Any, *, written: bool) -> None:
        self._models = state.openai_serving_models
        self._written = written

    async def add(self, adapter: Any) -> None:
        """Add an adapter, which may be there."""
        if self._written:
            self._models.lora_requests[adapter.lora_name] = adapter
            return
        from vllm.entrypoints.serve.lora.protocol import LoadLoRAAdapterRequest

        name, path = adapter.lora_name, adapter.lora_path
        await self._models.load_lora_adapter(LoadLoRAAdapterRequest(lora_name=name, lora_path=path))

    async def remove(self, name: str) -> None:
        """Remove an adapter that was added."""
        if self._written:
            del self._models.lora_requests[name]
            return
        from vllm.entrypoints.serve.lora.protocol import UnloadLoRAAdapterRequest

        await self._models.unload_lora_adapter(UnloadLoRAAdapterRequest(lora_name=name))


_PARSERS: Final = (("openai_serving_chat", "parser_cls"), ("openai_serving_responses", "parser"))
"""Attributes of `app.state` by which vLLM's application has the classes of its parsers."""


def replace_parsers(state: Any, replaced: Callable[[Any], Any]) -> None:
    """Replace the classes of parsers of tool calls in an application, where it has some."""
    for name, attribute in _PARSERS:
        serving = getattr(state, name, None)
        parser = getattr(serving, attribute, None)
        if isinstance(parser, type) and getattr(parser, "tool_parser_cls", None) is not None:
            setattr(serving, attribute, replaced(parser))


def content_delta(text: str) -> Any:
    """A part of a streamed answer as parsers make it."""
    from vllm.parser.abstract_parser import DeltaMessage

    return DeltaMessage(content=text)
