"""Writes the example's model: degrees Celsius as degrees Fahrenheit and as kelvins."""

from pathlib import Path

import numpy as np

version = Path(__file__).parent / "models" / "temperature" / "1"
version.mkdir(parents=True, exist_ok=True)
np.savez(
    version / "model.npz",
    matrix=np.array([[1.8, 1]], np.float32),
    vector=np.array([32, 273.15], np.float32),
)
