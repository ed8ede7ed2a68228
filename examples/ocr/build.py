"""Writes the repository: python -m examples.ocr.build FOLDER

The two networks are those of PP-OCRv4 in the package rapidocr-onnxruntime (Apache-2.0).
"""

from __future__ import annotations

import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent
INSTALL = "pip install --no-deps rapidocr-onnxruntime==1.4.4"
_NETWORKS = {"detect": "ch_PP-OCRv4_det_infer.onnx", "read": "ch_PP-OCRv4_rec_infer.onnx"}


def networks() -> Path | None:
    """The package's folder of networks, found without an import, which would want OpenCV."""
    spec = find_spec("rapidocr_onnxruntime")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent / "models"


def write_repository(folder: Path) -> None:
    """Write all models into `folder`, which is new."""
    import onnx

    found = networks()
    if found is None:
        raise SystemExit(f"the networks are missing: {INSTALL}")
    shutil.copytree(HERE / "models", folder)
    for model, file in _NETWORKS.items():
        shutil.copyfile(found / file, folder / model / "1" / "model.onnx")
    known = {one.key: one.value for one in onnx.load(found / _NETWORKS["read"]).metadata_props}
    (folder / "decode" / "characters.txt").write_text(known["character"], "utf-8")


if __name__ == "__main__":
    write_repository(Path(sys.argv[1]))
