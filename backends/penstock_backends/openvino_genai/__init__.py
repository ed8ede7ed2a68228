"""Language models on the CPU through OpenVINO GenAI, with in-flight batching."""

from penstock_backends.openvino_genai.backend import OpenVinoGenAiBackend

__all__ = ["OpenVinoGenAiBackend"]
