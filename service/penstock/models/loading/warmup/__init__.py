"""Made-up requests that every instance answers before its model is ready (I-19 to I-21)."""

from penstock.models.loading.warmup.run import warm_up
from penstock.models.loading.warmup.samples import WarmupSample, read_samples

__all__ = ["WarmupSample", "read_samples", "warm_up"]
