"""Models of TensorFlow: on TensorFlow where it is there, else on OpenVINO."""

from penstock_backends.tensorflow.backend import TensorFlowBackend

__all__ = ["TensorFlowBackend"]
