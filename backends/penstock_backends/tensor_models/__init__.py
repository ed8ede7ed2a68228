"""Models from tensors to tensors on any engine, and text encoders: a tokenizer in front of one."""

from penstock_backends.tensor_models.backend import TensorModelBackend
from penstock_backends.tensor_models.device_run import DeviceGraph
from penstock_backends.tensor_models.graph import Graph, GraphTensor
from penstock_backends.tensor_models.shared_model import SharedModel

__all__ = ["DeviceGraph", "Graph", "GraphTensor", "SharedModel", "TensorModelBackend"]
