"""Writes the repositories that the examples of Triton's client libraries ask."""

from collections.abc import Callable
from pathlib import Path

from penstock.demo import colour_classifier, example_models, small_models
from penstock.demo.repository import DemoModel, write_models

TEMPLATES = Path(__file__).with_name("assets") / "examples"

MODELS = "model_repository"
"""The eight models of Triton's own example repository: its model control examples count them."""
OTHERS = "more_models"
"""Models that further examples ask, of which some call those of the first repository."""

_ADD_FILES: dict[str, dict[str, Callable[[Path], None]]] = {
    MODELS: {
        "densenet_onnx": colour_classifier.add_densenet,
        "inception_onnx": colour_classifier.add_inception,
        "simple": small_models.add_simple,
        "simple_dyna_sequence": example_models.add_dyna_sequence,
        "simple_identity": example_models.add_nothing,
        "simple_int8": example_models.add_int8,
        "simple_sequence": example_models.add_sequence,
        "simple_string": example_models.add_string,
    },
    OTHERS: {
        "custom_identity_int32": example_models.add_nothing,
        "image_preprocess_nhwc_299x299x3_inception": example_models.add_nothing,
        "preprocess_inception_ensemble": example_models.add_nothing,
        "repeat_int32": example_models.add_nothing,
        "simple_string_dyna_sequence": example_models.add_nothing,
        "square_int32": example_models.add_nothing,
    },
}


def write_examples(directory: Path, *, report: Callable[[str], None]) -> None:
    """Write both repositories into `directory`; `report` gets a line for each model.

    A complete model of this version is kept, with any edits of its configuration.
    """
    for repository, models in _ADD_FILES.items():
        templates = TEMPLATES / repository
        written = [DemoModel(name, templates / name, add) for name, add in models.items()]
        write_models(directory / repository, written, report=report)
