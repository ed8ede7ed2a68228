"""`TextGenerator`: a model of any backend, or an ensemble, from text to text, by its tensors."""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.backend import (
    TEXT_OUTPUT,
    DataType,
    InferenceRequest,
    InternalError,
    ModelConfig,
    ResponseStream,
    Tensor,
)
from penstock_backends.openai_kit.generator import Generation, ModelFacts, Piece, Step, Submitted
from penstock_backends.openai_kit.packages import kit_imports
from penstock_backends.openai_kit.settings import OpenAiSettings
from penstock_backends.openai_kit.text_models.named_tokenizer import load_tokenizer
from penstock_backends.openai_kit.text_models.text_prompts import MOST_CHARACTERS, TextPrompts
from penstock_backends.openai_kit.text_models.text_tensors import DEFAULT_LENGTH, TextTensors

if TYPE_CHECKING:
    from penstock_backends.openai_kit.asgi import OpenAiApplication

JOINED: Final = (
    "{% if messages | length == 1 %}{{ messages[0].content }}{% else %}"
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}{% endif %}"
)
"""The chat template of a model whose tokenizer has none: one message is the prompt itself."""

_REASONS: Final = ("stop", "length", "content_filter", "tool_calls", "function_call")
"""OpenAI's reasons for the end of an answer; others are left out."""
_ACCUMULATE: Final = "accumulate_tokens"
"""Parameter of TensorRT-LLM's models: whether each response has the whole text so far."""
_FOUND: Final = ("model", "adapter", DEFAULT_LENGTH, "unknown_fields")
"""Parameters of a request that are the server's word to the application."""


class TextGenerator:
    """Submits prompts as requests with tensors, which wait for their turn as any others do."""

    def __init__(
        self,
        config: ModelConfig,
        tensors: TextTensors,
        prompts: TextPrompts,
        facts: ModelFacts,
    ) -> None:
        self._tensors = tensors
        self._accumulates = config.parameter(_ACCUMULATE) in ("true", "True", "1")
        self.facts = facts
        self.prompts = prompts

    def generate(self, generation: Generation) -> Submitted:
        """Submit a prompt; raises `InferenceError` at once if it is refused."""
        assert generation.infer is not None
        origin = generation.origin or InferenceRequest(self.facts.name)
        parameters = {n: one for n, one in origin.parameters.items() if n not in _FOUND}
        request = InferenceRequest(
            self.facts.name,
            id=generation.request_id,
            inputs=self._tensors.inputs(generation),
            parameters=parameters,
            priority=origin.priority,
            scope=origin.scope.part(),
        )
        stream = generation.infer(request)
        return _TextSteps(stream, generation, self.prompts, accumulates=self._accumulates)


class _TextSteps:
    """The steps of one answer: its texts as they come, and then why and with how much it ended."""

    def __init__(
        self,
        stream: ResponseStream,
        generation: Generation,
        prompts: TextPrompts,
        *,
        accumulates: bool,
    ) -> None:
        self._stream = stream
        self._generation = generation
        self._prompts = prompts
        self._accumulates = accumulates
        self._decoder = getincrementaldecoder("utf-8")("replace")
        self._first: Step | None = None
        self._text = ""
        self._taken = 0
        self._prompt: int | None = None
        self._generated: int | None = None
        self._reason: str | None = None
        self._ended = False

    def __aiter__(self) -> _TextSteps:
        return self

    async def begin(self) -> None:
        """Wait for the first text: only by it is known that the model takes the prompt."""
        self._first = await anext(self)

    async def __anext__(self) -> Step:
        if self._first is not None:
            step, self._first = self._first, None
            return step
        if self._ended:
            raise StopAsyncIteration
        async for response in self._stream:
            if response.error is not None:
                raise response.error
            if text := self._new_text(response.outputs):
                return Step([Piece(0, text)])
        return await self._last()

    async def aclose(self) -> None:
        self._stream.close()
        if not self._ended:
            self._report(await self._count())

    def _new_text(self, outputs: Mapping[str, Tensor]) -> str:
        """The text of a response that is new; what else it tells is kept."""
        self._keep(outputs)
        if TEXT_OUTPUT not in outputs:
            return ""
        data = _text_of(outputs[TEXT_OUTPUT])
        if self._accumulates:
            data, self._taken = data[self._taken :], len(data)
        text = self._decoder.decode(data)
        self._text += text
        return text

    def _keep(self, outputs: Mapping[str, Tensor]) -> None:
        if (prompt := _number(outputs, "num_input_tokens")) is not None:
            self._prompt = prompt
        if (generated := _number(outputs, "num_output_tokens")) is not None:
            before = 0 if self._accumulates else self._generated or 0
            self._generated = before + generated
        if "finish_reason" in outputs:
            reasons = outputs["finish_reason"].elements()
            told = reasons[0].decode("utf-8", "replace") if reasons else ""
            self._reason = told if told in _REASONS else self._reason

    async def _last(self) -> Step:
        """The end, with all tokens of the answer: pieces of a text are not always whole ones."""
        rest = self._decoder.decode(b"", final=True)
        self._text += rest
        generated = await self._count()
        self._report(generated)
        most = self._generation.parameters.get("max_tokens")
        cut = self._generated is not None and self._generated == most
        reason = self._reason or ("length" if cut else "stop")
        piece = Piece(0, rest, generated or 0, finish_reason=reason)
        return Step([piece], prompt_tokens=None if generated is None else self._prompt)

    async def _count(self) -> int | None:
        """The tokens of the answer, as the model tells them, else as its tokenizer has them."""
        if self._generated is not None:
            return self._generated
        answer = await self._prompts.of_text(self._text, special=False)
        return len(answer.tokens) if answer.counted else None

    def _report(self, generated: int | None) -> None:
        """Tell the server the tokens of the request, once, where they are known."""
        report, self._ended = self._generation.report_usage, True
        if report is not None and generated is not None:
            prompt = len(self._generation.prompt.tokens) if self._prompt is None else self._prompt
            report(prompt, 0, generated)


def _text_of(output: Tensor) -> bytes:
    """The one text of a response, which may be none; raises `InternalError`: the model is wrong."""
    if output.datatype is not DataType.BYTES:
        kind = output.datatype.name
        raise InternalError(f"the model has answered with {kind} in output '{TEXT_OUTPUT}'")
    texts = output.elements()
    if len(texts) > 1:
        raise InternalError(
            f"the model has answered with {len(texts)} texts in output '{TEXT_OUTPUT}' of one "
            "response, of which one can be told"
        )
    return texts[0] if texts else b""


def _number(outputs: Mapping[str, Tensor], name: str) -> int | None:
    """A count that the model tells; one below 0 is none."""
    found = outputs.get(name)
    number = -1 if found is None or not found.nbytes else int(found.numpy().ravel()[0])
    return None if number < 0 else number


def open_application(config: ModelConfig, tokenizer: Path | None) -> OpenAiApplication | None:
    """The application of a model of any backend, or an ensemble, from text to text.

    `tokenizer` is a file or a folder. Raises `ModelLoadError`.
    """
    tensors = TextTensors.of(config)
    if tensors is None:
        return None
    with kit_imports():
        from penstock_backends.openai_kit.application import language_model_app
        from penstock_backends.openai_kit.chat_template import find_special_tokens, find_template
    loaded, folders = None, []
    if tokenizer is not None:
        loaded = load_tokenizer(tokenizer)
        folders = [tokenizer if tokenizer.is_dir() else tokenizer.parent]
    facts = ModelFacts(
        config.name,
        MOST_CHARACTERS,
        0 if loaded is None else loaded.get_vocab_size(),
        longest_token=1,
        chat_template=find_template(folders, JOINED),
        special_tokens=find_special_tokens(folders),
    )
    prompts = TextPrompts(config.name, loaded)
    return language_model_app(TextGenerator(config, tensors, prompts, facts), OpenAiSettings())
