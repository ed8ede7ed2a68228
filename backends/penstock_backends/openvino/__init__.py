"""Models for tensors on OpenVINO: its own format, ONNX, TFLite and TensorFlow's."""

from penstock_backends.openvino.backend import OpenVinoBackend

__all__ = ["OpenVinoBackend"]
