"""Plans of TensorRT, on NVIDIA's GPUs."""

from penstock_backends.tensorrt.backend import TensorRtBackend

__all__ = ["TensorRtBackend"]
