"""ONNX models on ONNX Runtime, and text encoders: a tokenizer in front of one."""

from penstock_backends.onnxruntime.backend import OnnxRuntimeBackend

__all__ = ["OnnxRuntimeBackend"]
