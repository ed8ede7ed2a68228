"""Language models on TensorRT-LLM, through its LLM API; and its tensors over other models."""

from penstock_backends.tensorrt_llm.backend import TensorRtLlmBackend, TensorRtLlmTokensBackend
from penstock_backends.tensorrt_llm.model_face import TensorRtLlmFaceBackend

__all__ = ["TensorRtLlmBackend", "TensorRtLlmFaceBackend", "TensorRtLlmTokensBackend"]
