"""A stand-in for TensorRT-LLM: its API by the committed facts, and a made-up model behind it.

Every call is bound to the signature that `api-*.json` tells; a name that is not there raises, as
does one that is given by its place.
"""

from .model import LLM
from .params import SamplingParams

__all__ = ["LLM", "SamplingParams"]
