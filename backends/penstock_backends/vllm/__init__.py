"""Language models through vLLM, on GPUs and, more slowly to start, on CPUs."""

from penstock_backends.vllm.backend import VllmBackend

__all__ = ["VllmBackend"]
