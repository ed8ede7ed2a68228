"""Shared memory of tensors: regions that clients register, and memory of request messages."""
