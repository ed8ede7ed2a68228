"""A stand-in for CUDA's bindings: a GPU whose rules are kept, without one."""
