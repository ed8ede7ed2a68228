"""The class that runs TensorRT engines, in releases that still do."""

from .facts import release
from .model import LLM

if release() != "1.2":
    raise ImportError("TensorRT engines are gone")

__all__ = ["LLM"]
