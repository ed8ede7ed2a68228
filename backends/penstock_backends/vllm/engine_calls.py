"""`EngineCalls`: calls of a vLLM engine that are not requests: sleep, pause, caches, adapters."""

from __future__ import annotations

import re
from collections.abc import Awaitable
from typing import Any

from penstock.backend import InternalError, InvalidRequestError, UnavailableError
from penstock_backends.vllm.arguments.engine_args import EngineArguments
from penstock_backends.vllm.failures import death, reason

_WRAPPED = re.compile(
    r"^(?:Call to \w+ method failed: )?Worker failed with error '(.*)', please check .*$", re.DOTALL
)
"""The text that vLLM puts around the error of one of its workers."""


class EngineCalls:
    """Calls of one `AsyncLLM`, and whether it sleeps or pauses. They raise `InferenceError`."""

    def __init__(self, llm: Any, arguments: EngineArguments) -> None:
        self._llm = llm
        self._path = arguments.path
        self._asleep = False
        self._forgot = False
        self._paused = False

    @property
    def condition(self) -> str:
        """Why the engine answers nothing new; empty while it does."""
        if self._asleep:
            return "the engine is asleep"
        return "the engine is paused" if self._paused else ""

    def check_awake(self) -> None:
        """Raise `UnavailableError` while it sleeps; while it pauses, requests wait."""
        if self._asleep:
            raise UnavailableError("the engine is asleep; the action 'wake' wakes it")

    # -- sleep and pause ------------------------------------------------------------------------

    async def sleep(self, level: int, mode: str) -> None:
        """Release memory of the device: 1 keeps a copy of the weights, 2 none, 0 releases none."""
        if level and not self._llm.vllm_config.model_config.enable_sleep_mode:
            raise InvalidRequestError(
                f"this engine can sleep at level 0 only: '{self._path}' does not set"
                " 'enable_sleep_mode'"
            )
        self._forgot = self._forgot or level == 2
        was, self._asleep = self._asleep, True  # before it, since it waits for what is in flight
        try:
            await _asked("sleep", self._llm.sleep(level, mode))
        except BaseException:
            self._asleep = was
            raise

    async def wake(self, tags: list[str] | None) -> bool:
        """Whether it is awake now: with `tags`, perhaps in part only.

        Without, the weights are read again that level 2 has released.
        """
        if self._forgot and tags is None:
            await _asked("wake", self._llm.wake_up(["weights"]))
            await _asked("read its weights", self._llm.collective_rpc("reload_weights"))
            self._forgot = False
            tags = ["kv_cache"]
        whole = await _asked("wake", self._llm.wake_up(tags))
        self._asleep = whole is False
        return not self._asleep

    async def pause(self, mode: str, *, clear_cache: bool) -> None:
        """Schedule nothing more; with `keep`, what is in flight goes on after `resume`."""
        await _asked("pause", self._llm.pause_generation(mode=mode, clear_cache=clear_cache))
        self._paused = True

    async def resume(self) -> None:
        """Schedule again."""
        await _asked("resume", self._llm.resume_generation())
        self._paused = False

    async def reset_prefix_cache(self, running: bool, connector: bool) -> bool:
        """Forget cached prefixes; false if blocks in use have kept it from that."""
        call = self._llm.reset_prefix_cache(running, connector)
        return bool(await _asked("reset its prefix cache", call))

    # -- adapters -------------------------------------------------------------------------------

    @property
    def most_adapters(self) -> int:
        """Adapters that it keeps."""
        lora = self._llm.vllm_config.lora_config
        return int(lora.max_cpu_loras or lora.max_loras)

    async def add_adapter(self, name: str, number: int, path: str) -> Any:
        """Load an adapter; returns what requests name it with.

        Raises `InvalidRequestError` with the engine's words if it cannot be loaded.
        """
        from vllm.lora.request import LoRARequest

        request = LoRARequest(lora_name=name, lora_int_id=number, lora_path=path)
        try:
            await self._llm.add_lora(request)
        except Exception as error:  # vLLM's own, of any kind
            if (dead := death(error)) is not None:
                raise dead from error
            raise InvalidRequestError(_WRAPPED.sub(r"\1", reason(error))) from error
        return request

    async def remove_adapter(self, number: int) -> None:
        """Unload an adapter, if it is loaded at all."""
        await _asked("remove an adapter", self._llm.remove_lora(number))


async def _asked(what: str, call: Awaitable[Any]) -> Any:
    try:
        return await call
    except Exception as error:  # vLLM's own, of any kind
        if (dead := death(error)) is not None:
            raise dead from error
        raise InternalError(f"vLLM could not {what}: {reason(error)}") from error
