"""Language models on TensorRT-LLM, through its LLM API."""

from penstock_backends.tensorrt_llm.backend import TensorRtLlmBackend, TensorRtLlmTokensBackend

__all__ = ["TensorRtLlmBackend", "TensorRtLlmTokensBackend"]
