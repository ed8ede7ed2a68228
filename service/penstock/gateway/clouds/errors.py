"""The error of an endpoint that cannot start as it is set up."""


class EndpointStartError(Exception):
    """An endpoint has no use as it is set up; the text is what `tritonserver` says."""

    def __init__(self, service: str, problem: str) -> None:
        super().__init__(f"failed to start {service} service: Invalid argument - {problem}")
