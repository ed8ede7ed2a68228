"""Bodies of both cloud services with tensors behind JSON, whose media types tell its length."""

from __future__ import annotations

import numpy as np

LARGE = np.arange(1 << 16, dtype=np.float32)


def large_body(media_type: str) -> tuple[bytes, dict[str, str]]:
    """A request with `LARGE` as input `IN`, and the headers of its body."""
    text = (
        f'{{"inputs":[{{"name":"IN","datatype":"FP32","shape":[{LARGE.size}],'
        f'"parameters":{{"binary_data_size":{LARGE.nbytes}}}}}]}}'
    ).encode()
    return text + LARGE.tobytes(), {"content-type": f"{media_type}{len(text)}"}
