"""`MeteredEngine`: the running engine as vLLM's application sees it, with its requests counted."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from contextvars import ContextVar
from copy import copy
from http import HTTPStatus
from typing import Any, Final

from penstock.backend import InvalidRequestError, UnavailableError
from penstock_backends.language_model import UsageReporter, UsageSum, check_stops
from penstock_backends.language_model.constraints import check_constraint
from penstock_backends.vllm.engine import VllmEngine
from penstock_backends.vllm.inputs.ending_json import with_ending_json
from penstock_backends.vllm.inputs.request_options import NEEDS_POLICY
from penstock_backends.vllm.inputs.sampling import check_values
from penstock_backends.vllm.openai.exchange_record import Counting, noting

_CONSTRAINTS: Final = ("json", "regex", "choice", "grammar", "structural_tag")


CURRENT: Final[ContextVar[UsageSum | None]] = ContextVar("exchange", default=None)
"""The usage of the exchange that is being answered, where the server wants to know it: that of all
its prompts."""

LOADED: Final[ContextVar[Any]] = ContextVar("loaded", default=None)
"""The adapter of the exchange that is being answered, as the engine has loaded it.

vLLM's application has it by the name that clients use.
"""


class MeteredEngine:
    """Everything of an `AsyncLLM`; of what it generates, tokens are reported to the server."""

    def __init__(self, engine: VllmEngine, llm: Any) -> None:
        self._engine = engine
        self._llm = llm

    def __getattr__(self, name: str) -> Any:
        return getattr(self._llm, name)

    def generate(
        self, prompt: Any, sampling_params: Any, request_id: str, **more: Any
    ) -> AsyncGenerator[Any, None]:
        """vLLM's outputs; raises `ValueError`, which its application answers with, for what would
        crash the engine, or keep it busy for minutes.
        """
        _check(sampling_params, self._engine, more.get("priority"))
        exchange = CURRENT.get()
        usage = None if exchange is None else UsageReporter(exchange.part())
        if usage is not None:
            sampling_params = _with_first_token(sampling_params)
        count = None if usage is None else _Count(usage, sampling_params)
        more = _as_loaded(more)

        async def submit() -> Any:
            sampling = await with_ending_json(sampling_params, self._engine.facts)
            return self._llm.generate(prompt, sampling, request_id, **more)

        return self._followed(submit, noting(count, sampling_params))

    def encode(
        self, prompt: Any, pooling_params: Any, *arguments: Any, **more: Any
    ) -> AsyncGenerator[Any, None]:
        """vLLM's outputs of a pooling model; raises `ValueError` as `generate` does."""
        _check(pooling_params, self._engine, more.get("priority"))
        exchange = CURRENT.get()
        count = None if exchange is None else _PromptCount(UsageReporter(exchange.part()))
        more = _as_loaded(more)

        async def submit() -> Any:
            return self._llm.encode(prompt, pooling_params, *arguments, **more)

        return self._followed(submit, count)

    async def add_lora(self, lora_request: Any) -> bool:
        """Nothing: adapters are loaded before vLLM's application hears of them."""
        return True

    async def _followed(
        self, submit: Callable[[], Awaitable[Any]], count: Counting | None
    ) -> AsyncGenerator[Any, None]:
        engine = self._engine
        try:
            engine.begin()
        except UnavailableError as error:
            raise _unavailable(error.message) from error
        finished = False
        try:
            async with aclosing(await submit()) as outputs:
                async for output in outputs:
                    if count is not None:
                        count.add(output)
                    finished = output.finished
                    yield output
        except Exception as error:  # vLLM's own, which its application answers with
            known = _application_error(error, engine)
            if known is error:
                raise
            raise known from error
        except BaseException:  # the client has disconnected
            engine.statistics.cancelled += not finished
            raise
        finally:
            if count is not None and not finished:
                count.cut_off()


class _Count:
    """Reports the tokens of outputs, which hold either the new ones of a sequence or all.

    vLLM keeps the statistics of a sequence up to date, also for outputs that nobody has taken.
    """

    def __init__(self, usage: UsageReporter, sampling: Any) -> None:
        self._usage = usage
        self._single = sampling.n == 1
        self._statistics: Any = None
        self._adds = sampling.output_kind.name == "DELTA"
        self._seen: dict[int, int] = {}

    def add(self, output: Any) -> None:
        """Report what is new in an output."""
        usage, new = self._usage, 0
        self._statistics = output.metrics
        for one in output.outputs:
            size = len(one.token_ids)
            new += size if self._adds else size - self._seen.get(one.index, 0)
            self._seen[one.index] = size
        usage.prompt = len(output.prompt_token_ids or ()) or usage.prompt
        usage.cached = output.num_cached_tokens or 0
        usage.add(new, finished=output.finished)

    def cut_off(self) -> None:
        """Report what is left, also in outputs that were not taken before the client left."""
        if self._single and self._statistics is not None:
            untaken = self._statistics.num_generation_tokens - self._usage.tokens
            self._usage.add(max(untaken, 0), finished=False)
        self._usage.cut_off()


class _PromptCount:
    """Reports the tokens of a prompt of which nothing is generated."""

    def __init__(self, usage: UsageReporter) -> None:
        self._usage = usage

    def add(self, output: Any) -> None:
        """Report the prompt's tokens, which an output has."""
        self._usage.prompt = len(output.prompt_token_ids or ())
        self._usage.cached = getattr(output, "num_cached_tokens", None) or 0
        self._usage.add(0, finished=output.finished)

    def cut_off(self) -> None:
        """Nothing is left: there is one output."""


def _check(params: Any, engine: VllmEngine, priority: int | None) -> None:
    """Hold parameters to the bounds of those of requests with tensors."""
    if priority and not engine.facts.by_priority:
        raise ValueError(f"'priority' {NEEDS_POLICY}")
    given = {name: getattr(params, name) for name in params.__struct_fields__}
    constraint = given.get("structured_outputs")
    try:
        check_values(
            {name: value for name, value in given.items() if value is not None},
            logprobs=engine.logprobs,
        )
        check_stops(given.get("stop") or ())
        check_constraint({name: getattr(constraint, name, None) for name in _CONSTRAINTS})
    except InvalidRequestError as error:
        raise ValueError(error.message) from error


def _as_loaded(more: dict[str, Any]) -> dict[str, Any]:
    """Arguments of a request with its adapter as the engine knows it."""
    return {**more, "lora_request": LOADED.get()} if more.get("lora_request") else more


def _application_error(error: Exception, engine: VllmEngine) -> Exception:
    """The error that vLLM's application answers with, in the place of one of the engine's.

    What has failed while it was generated has no text of its own, but a cause with the reason.
    """
    from vllm.exceptions import GenerationError

    failure = engine.failure(error)
    if engine.failed or isinstance(failure, UnavailableError):
        return _unavailable(failure.message)
    known: Exception = error if str(error) else GenerationError(failure.message)
    return known


def _unavailable(message: str) -> Exception:
    """The error that vLLM's application answers with status 503; its own become 500."""
    from vllm.exceptions import GracefulHTTPError

    error: Exception = GracefulHTTPError(message, HTTPStatus.SERVICE_UNAVAILABLE)
    return error


def _with_first_token(sampling: Any) -> Any:
    """The parameters of one whole answer, changed so that outputs come from its first token on."""
    from vllm.sampling_params import RequestOutputKind

    if sampling.n != 1 or sampling.output_kind is not RequestOutputKind.FINAL_ONLY:
        return sampling
    changed = copy(sampling)
    changed.output_kind = RequestOutputKind.CUMULATIVE
    return changed
