"""Folders in the layout of the Hugging Face Hub, around the demo's encoder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np

from penstock.demo.sentence_encoder import BertGraph, published_folder, published_weights


def write_sentence_transformer(folder: Path) -> None:
    """all-MiniLM-L6-v2 as its repository has it, with a graph that has a state for each token."""
    shutil.copytree(published_folder(), folder, dirs_exist_ok=True)
    bert = BertGraph("encoder", *published_weights())
    states = bert.states(bert.graph.cast(bert.mask, "float32"))
    bert.graph.output("last_hidden_state", states, "float32", ("batch", "length", bert.width))
    (folder / "onnx").mkdir()
    bert.graph.save(folder / "onnx" / "model.onnx")


def write_classifier(folder: Path, labels: list[str]) -> None:
    """A classifier of texts, or a cross-encoder with one label, over the same network."""
    folder.mkdir()
    weights, config = published_weights()
    bert = BertGraph("classifier", weights, config)
    mask = bert.graph.cast(bert.mask, "float32")
    sentence = bert.mean(bert.states(mask), mask)
    head = np.random.default_rng(3).normal(size=(bert.width, len(labels))).astype(np.float32)
    logits = bert.graph.op("MatMul", sentence, bert.graph.weight(head))
    bert.graph.output("logits", logits, "float32", ("batch", len(labels)))
    bert.graph.save(folder / "model.onnx")
    names = {"id2label": {str(at): label for at, label in enumerate(labels)}}
    architecture = {"architectures": ["BertForSequenceClassification"]}
    (folder / "config.json").write_text(json.dumps(config | names | architecture))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(published_folder() / name, folder / name)
