"""POST /v1/embeddings of image encoders: one image in `messages`, in the form that vLLM takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, NotRequired, Protocol

from typing_extensions import TypedDict

from penstock_backends.language_model import MediaLimits, fetch_media
from penstock_backends.openai_kit.asgi import Answer, Exchange, OpenAiApplication, Route
from penstock_backends.openai_kit.embeddings import Embeddings
from penstock_backends.openai_kit.encoders import check_dimensions, embeddings_answer
from penstock_backends.openai_kit.errors import refuse_field
from penstock_backends.openai_kit.json_body import BodyReader, read_object

_LONGEST_BODY: Final = 8 << 20


class ImageEncoder(Protocol):
    """An encoder of images that is loaded."""

    @property
    def matryoshka(self) -> bool:
        """Whether the beginning of a vector is a vector, as the model was trained for."""

    async def embed_file(self, content: bytes, known: Mapping[str, Any]) -> Embeddings:
        """The vector of what is in a file; raises `InferenceError`.

        `known` is `Exchange.known`.
        """


class _Message(TypedDict):
    role: str
    content: str | list[dict[str, Any]]


class _ImageEmbedding(TypedDict):
    model: str
    messages: list[_Message]
    encoding_format: NotRequired[Literal["float", "base64"]]
    dimensions: NotRequired[int]
    user: NotRequired[str]


def image_encoder_app(encoder: ImageEncoder, limits: MediaLimits) -> OpenAiApplication:
    """The application of an encoder of images, which may be named by URL within `limits`."""
    endpoint = _Endpoint(encoder, limits)
    routes = {"/v1/embeddings": Route(endpoint.embeddings, (endpoint.images,))}
    return OpenAiApplication("ImageEncoder", routes, _LONGEST_BODY)


class _Endpoint:
    def __init__(self, encoder: ImageEncoder, limits: MediaLimits) -> None:
        self._encoder = encoder
        self._limits = limits
        self.images = BodyReader(_ImageEmbedding, ignore_unknown=False)

    async def embeddings(self, exchange: Exchange) -> Answer:
        """The vector of an image."""
        given = read_object(exchange.body)
        if "input" in given:
            refuse_field(
                "input", "this model takes an image: send it in 'messages', not in 'input'"
            )
        fields = self.images.check(given, exchange.parameters)
        check_dimensions(fields, matryoshka=self._encoder.matryoshka)
        urls = list(_urls(fields["messages"]))
        if len(urls) != 1:
            refuse_field("messages", f"'messages' must hold one image, not {len(urls)}")
        content = await fetch_media(urls[0], "image_url", self._limits)
        found = await self._encoder.embed_file(content, exchange.known)
        return embeddings_answer(found, fields, exchange)


def _urls(messages: list[Mapping[str, Any]]) -> Iterator[str]:
    """The URLs of all images; text may be there as long as it is empty."""
    for place, message in enumerate(messages):
        content = message["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for number, part in enumerate(parts):
            url = part.get("image_url")
            url = url.get("url") if isinstance(url, dict) else url
            if part.get("type") == "image_url" and isinstance(url, str):
                yield url
            elif part.get("type") != "text" or part.get("text"):
                refuse_field(
                    "messages",
                    f"messages[{place}].content[{number}]: this model takes images, in parts such"
                    ' as {"type": "image_url", "image_url": {"url": "data:image/png;base64,..."}}',
                )
