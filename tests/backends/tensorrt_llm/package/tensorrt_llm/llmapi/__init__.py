"""What the package exports beside its two classes."""

from ..params import GuidedDecodingParams

__all__ = ["GuidedDecodingParams"]
