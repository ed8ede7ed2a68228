"""Language models on TensorRT-LLM, through its LLM API."""

from penstock_backends.tensorrt_llm.backend import TensorRtLlmBackend

__all__ = ["TensorRtLlmBackend"]
