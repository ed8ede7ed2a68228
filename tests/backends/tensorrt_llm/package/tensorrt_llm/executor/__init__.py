"""Errors of the executor."""


class RequestError(RuntimeError):
    """A request that was refused."""


class CppExecutorError(RuntimeError):
    """The end of the engine."""
