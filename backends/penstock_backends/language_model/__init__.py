"""The common part of language-model backends: Triton's vLLM tensors, parameters, delivery."""

from penstock_backends.language_model.answer import (
    Answer,
    Candidate,
    EncodeAnswer,
    Logprobs,
    TokenLogprob,
)
from penstock_backends.language_model.backend import LanguageModelBackend
from penstock_backends.language_model.declared_tensors import check_decoupled, complete_tensors
from penstock_backends.language_model.delivery import Delivery, PacedSender
from penstock_backends.language_model.detokenizer import Detokenizer
from penstock_backends.language_model.generation_record import GenerationRecord, record_of
from penstock_backends.language_model.generation_times import (
    GenerationTimes,
    exemplar_id,
    tenant_label,
)
from penstock_backends.language_model.media.bounds import MediaLimits, media_limits
from penstock_backends.language_model.media.fetching import (
    check_encoded_size,
    decode_base64,
    fetch_media,
    fetch_media_here,
    limit_fetches,
)
from penstock_backends.language_model.media.image_decoding import (
    PixelBudget,
    decode_image,
    keep_image_formats,
)
from penstock_backends.language_model.openai_fields import WITHOUT_EFFECT, asks_for_nothing
from penstock_backends.language_model.parameters import (
    ParameterReader,
    check_count,
    check_length,
    check_stops,
    read_parameters,
    refuse,
)
from penstock_backends.language_model.prompt_size import check_long_prompt
from penstock_backends.language_model.prompt_tokens import PromptTokens
from penstock_backends.language_model.request import (
    RUNNING_ERROR,
    GenerationRequest,
    WantedOutputs,
    checked_ids,
    read_request,
)
from penstock_backends.language_model.statistics import (
    ENGINE_REQUESTS,
    ENGINE_TOKENS,
    EngineStatistics,
)
from penstock_backends.language_model.stop_strings import StopStrings, stops_complaint
from penstock_backends.language_model.stream_interval import StreamInterval, stream_interval
from penstock_backends.language_model.usage import UsageReporter, UsageSum, usage_of

__all__ = [
    "ENGINE_REQUESTS",
    "ENGINE_TOKENS",
    "RUNNING_ERROR",
    "WITHOUT_EFFECT",
    "Answer",
    "Candidate",
    "Delivery",
    "Detokenizer",
    "EncodeAnswer",
    "EngineStatistics",
    "GenerationRecord",
    "GenerationRequest",
    "GenerationTimes",
    "LanguageModelBackend",
    "Logprobs",
    "MediaLimits",
    "PacedSender",
    "ParameterReader",
    "PixelBudget",
    "PromptTokens",
    "StopStrings",
    "StreamInterval",
    "TokenLogprob",
    "UsageReporter",
    "UsageSum",
    "WantedOutputs",
    "asks_for_nothing",
    "check_count",
    "check_decoupled",
    "check_encoded_size",
    "check_length",
    "check_long_prompt",
    "check_stops",
    "checked_ids",
    "complete_tensors",
    "decode_base64",
    "decode_image",
    "exemplar_id",
    "fetch_media",
    "fetch_media_here",
    "keep_image_formats",
    "limit_fetches",
    "media_limits",
    "read_parameters",
    "read_request",
    "record_of",
    "refuse",
    "stops_complaint",
    "stream_interval",
    "tenant_label",
    "usage_of",
]
