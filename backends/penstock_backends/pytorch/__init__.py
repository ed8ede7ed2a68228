"""PyTorch: TorchScript, exported and AOTInductor packages, and modules with their weights."""

from penstock_backends.pytorch.backend import PyTorchBackend

__all__ = ["PyTorchBackend"]
