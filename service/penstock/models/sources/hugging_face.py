"""Models in the layout of the Hugging Face Hub: `config.json`, weights, a tokenizer; or GGUF.

What a model is for follows from its architecture, the backend from the weights that are there, and
further values from the files that `transformers` and `sentence-transformers` read them from.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import PurePosixPath
from typing import Any, Final

from penstock.models.sources.draft import (
    Draft,
    SourceError,
    Wishes,
    as_json,
    one_line,
    safe_name,
)
from penstock.models.sources.engine_file import external_data
from penstock.models.sources.folder import Folder, json_object
from penstock.settings import Task

_MOST_TOKENS: Final = 1 << 20
"""Tokenizers that have no limit say a larger number."""

_QUANTIZED: Final = "Q4_K_M"
"""The GGUF file that is taken where a repository has one for each quantization."""
_PART: Final = re.compile(r"-\d{5}-of-\d{5}\.gguf$")

_TASKS: Final = {
    "ForCausalLM": Task.GENERATE,
    "ForConditionalGeneration": Task.GENERATE,
    "LMHeadModel": Task.GENERATE,
    "ForSequenceClassification": Task.CLASSIFY,
    "ForImageClassification": Task.CLASSIFY,
    "Model": Task.EMBED,
    "ModelWithProjection": Task.EMBED,
}
"""By the endings of the names of architectures; the longest one counts."""

_GRAPHS: Final = (
    ("onnxruntime", "model.onnx", ("onnx/model.onnx", "model.onnx")),
    ("openvino", "model.xml", ("openvino/openvino_model.xml", "openvino_model.xml")),
)
"""Backend, the file's name in the version's folder, and where the layout has it."""

_POOLING: Final = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "last",
}
"""What sentence-transformers calls the ways to make one vector, and what they are called here."""
_POOLED: Final = (
    "pooling_mode_max_tokens",
    "pooling_mode_mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens",
)
"""Those that are not there."""

_MOST_LABELS: Final = 1 << 16

_FILTERS: Final = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
"""Pillow's, by their numbers."""


def hugging_face(folder: Folder, name: str, wishes: Wishes) -> Draft | None:
    """The model of a folder; `None` for one that is not in this layout. Raises `SourceError`."""
    names = folder.names()
    ggufs = [each for each in names if each.endswith(".gguf") and "/" not in each]
    if "config.json" not in names and not ggufs:
        return None
    draft = Draft(name or safe_name(folder.name))
    try:
        return _Layout(folder, names, ggufs, draft, wishes).draft()
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise SourceError(
            f"'{folder.text}' has files that are not what transformers writes: "
            + one_line(repr(error))
        ) from error


class _Layout:
    """A folder of this layout, and the draft that is made of it."""

    def __init__(
        self,
        folder: Folder,
        names: Sequence[str],
        ggufs: Sequence[str],
        draft: Draft,
        wishes: Wishes,
    ) -> None:
        self._folder, self._names, self._ggufs = folder, names, ggufs
        self._draft, self._wishes = draft, wishes
        self._config = self._read("config.json")

    def draft(self) -> Draft:
        task, why = self._task()
        if task is Task.GENERATE:
            self._generate(why)
        elif "preprocessor_config.json" in self._names and "tokenizer.json" not in self._names:
            self._graph(why)
            self._images()
        else:
            self._texts(task, why)
        return self._draft

    # -- what it is for -------------------------------------------------------------------------

    def _task(self) -> tuple[Task, str]:
        """What the model is for, and why."""
        if self._wishes.task is not None:
            return self._wishes.task, "as --task says"
        if not self._config and self._ggufs:
            return Task.GENERATE, "GGUF files are language models"
        if "modules.json" in self._names:
            return Task.EMBED, "modules.json is that of sentence-transformers"
        architecture = self._architecture()
        for ending in sorted(_TASKS, key=len, reverse=True):
            if architecture.endswith(ending):
                task = _TASKS[ending]
                if task is Task.CLASSIFY and len(self._labels()) == 1:
                    task = Task.RERANK  # a cross-encoder has one number for two texts
                return task, f"architecture {architecture}"
        raise SourceError(
            f"'{self._folder.text}' does not say what the model is for"
            f" (architectures: {architecture or 'none'}): give --task, one of {', '.join(Task)}"
        )

    def _architecture(self) -> str:
        return re.sub(r"\W", "_", str((self._config.get("architectures") or [""])[0]))

    def _labels(self) -> list[str]:
        named = self._config.get("id2label")
        if isinstance(named, dict) and named:
            ordered = sorted(named.items(), key=lambda one: int(one[0]))
            return [one_line(str(label)) for _, label in ordered]
        count = int(self._config.get("num_labels", 2))
        if not 0 < count <= _MOST_LABELS:
            raise SourceError(f"'{self._folder.text}' has {count:,} labels")
        return [f"LABEL_{at}" for at in range(count)]

    # -- language models ------------------------------------------------------------------------

    def _generate(self, why: str) -> None:
        weights = self._weights()
        ir = next((each for each in _GRAPHS[1][2] if each in self._names), "")
        if weights and (find_spec("vllm") or not (ir or self._ggufs)):
            self._vllm(why)
        elif ir:
            inside = str(PurePosixPath(ir).parent)
            self._take(*[n for n in self._names if str(PurePosixPath(n).parent) == inside])
            self._take("tokenizer.json", "config.json", "generation_config.json")
            self._draft.links = {PurePosixPath(n).name: p for n, p in self._draft.links.items()}
            self._draft.batches = False
            self._draft.backend("openvino_genai", f"{why}, in OpenVINO's format")
        elif self._ggufs:
            chosen = self._chosen_gguf()
            if "tokenizer.json" not in self._names:
                raise SourceError(
                    f"'{self._folder.text}' has no tokenizer.json, which is needed beside {chosen}:"
                    " it is among the files of the model that this one was made from"
                )
            self._take(chosen, "tokenizer.json", "tokenizer_config.json", "config.json")
            self._draft.batches = False
            self._draft.backend("openvino_genai", f"{why}; of a file in GGUF, {chosen}")
        else:
            raise SourceError(
                f"'{self._folder.text}' has no weights: neither *.safetensors, nor *.bin, *.gguf or"
                " openvino_model.xml"
            )

    def _weights(self) -> list[str]:
        """Those of transformers; OpenVINO's have a graph of the same name beside them."""
        return [
            each
            for each in self._names
            if "/" not in each
            and each.endswith((".safetensors", ".bin"))
            and f"{each.removesuffix('.bin')}.xml" not in self._names
        ]

    def _vllm(self, why: str, **settings: object) -> None:
        """The whole folder, less weights that are there in another format, too."""
        safe = any(each.endswith(".safetensors") for each in self._names)
        other = (".bin", ".pt", ".pth", ".h5", ".msgpack", ".ot") if safe else ()
        wanted = [
            each
            for each in self._names
            if "/" not in each and not each.endswith((*other, ".gguf", ".onnx", ".md"))
        ]
        taken = self._folder.take(wanted)
        self._draft.links |= {f"weights/{name}": path for name, path in taken.items()}
        self._draft.batches = False
        self._draft.texts["model.json"] = as_json({"model": "weights", **settings})
        self._draft.backend("vllm", f"{why}; weights as transformers has them")

    def _chosen_gguf(self) -> str:
        whole = [each for each in self._ggufs if not _PART.search(each)]
        usual = [each for each in whole if _QUANTIZED in each.upper()]
        for choice in (whole, usual):
            if len(choice) == 1:
                return choice[0]
        raise SourceError(
            f"'{self._folder.text}' has several GGUF files: {', '.join(self._ggufs)}; give the path"
            " of one (penstock pull hf://OWNER/NAME FILE brings it to the disk)"
        )

    # -- graphs ---------------------------------------------------------------------------------

    def _graph(self, why: str) -> bool:
        """Take the graph of an engine; whether there is one."""
        found = [
            (backend, name, path)
            for backend, name, paths in _GRAPHS
            for path in paths
            if path in self._names
        ]
        if not found:
            return False
        backend, name, path = next(
            (each for each in found if find_spec(each[0]) is not None), found[0]
        )
        stem, begins = path.removesuffix(PurePosixPath(path).suffix), (f"{path}_", f"{path}.")
        for each in self._names:
            if each == path:
                self._link(each, name)
                self._link_weights(each)
            elif each.startswith(begins):  # external data, by whose name the graph finds it
                self._link(each, PurePosixPath(each).name)
            elif each == f"{stem}.bin" and backend == "openvino":
                self._link(each, "model.bin")
        self._draft.backend(backend, f"{why}; {path} is there")
        return True

    def _link_weights(self, graph: str) -> None:
        """Link the files in which a graph says that its weights are."""
        for name in external_data(self._folder.take([graph])[graph]):
            path = str(PurePosixPath(graph).parent / name)
            if path not in self._names:
                raise SourceError(
                    f"'{self._folder.text}' has no file '{path}', where {graph} has its weights"
                )
            self._link(path, name)

    def _texts(self, task: Task, why: str) -> None:
        """A model that reads texts through a tokenizer."""
        if "tokenizer.json" in self._names and self._graph(why):
            self._text_graph(task)
        elif self._weights():
            runner = "classify" if task is Task.CLASSIFY else ""
            self._vllm(why, runner="pooling", **({"convert": runner} if runner else {}))
        else:
            raise SourceError(
                f"'{self._folder.text}' has neither a graph with its tokenizer.json"
                " (onnx/model.onnx or openvino_model.xml) nor weights. One that"
                " sentence-transformers reads becomes"
                " a graph with: optimum-cli export onnx --model MODEL FOLDER"
            )

    def _text_graph(self, task: Task) -> None:
        draft = self._draft
        self._take("tokenizer.json")
        draft.parameter("penstock.tokenizer", "tokenizer.json", "clients send texts")
        if longest := self._longest():
            draft.parameter("penstock.max_tokens", str(longest), "what the model was trained for")
        if self._wishes.max_batch_size is None:
            draft.add(
                "max_batch_size: 32\ndynamic_batching { }", "texts of several requests at once"
            )
        if task is Task.EMBED:
            self._pooling()
        elif task is Task.RERANK:
            names = ("QUERY", "TEXT")
            both = ", ".join(
                f'{{ name: "{name}" data_type: TYPE_STRING dims: [ 1 ] }}' for name in names
            )
            draft.add(f"input [ {both} ]", "pairs of texts have one score")
        else:
            self._add_labels()

    def _longest(self) -> int:
        """The tokens that a text may have; 0 if nothing says it."""
        bert, tokenizer = (
            self._read("sentence_bert_config.json"),
            self._read("tokenizer_config.json"),
        )
        positions = self._config.get("max_position_embeddings")
        if isinstance(positions, int) and "roberta" in str(self._config.get("model_type")):
            positions -= 2  # which its numbers of positions leave out
        told = bert.get("max_seq_length"), tokenizer.get("model_max_length"), positions
        return next((e for e in told if isinstance(e, int) and 0 < e < _MOST_TOKENS), 0)

    def _pooling(self) -> None:
        """How the states of words become a vector, where the graph does not do it."""
        modules = self._read("modules.json")
        kinds = [str(each.get("type", "")) for each in modules] if modules else []
        if any(each.endswith(".Dense") for each in kinds):
            raise SourceError(
                f"'{self._folder.text}' has a layer behind its graph (Dense); export the whole"
                " with: optimum-cli export onnx --library sentence_transformers --model MODEL"
                " FOLDER"
            )
        pooling = self._read("1_Pooling/config.json")
        chosen = [name for name, value in pooling.items() if name in _POOLING and value is True]
        chosen += [name for name, value in pooling.items() if name in _POOLED and value is True]
        if pooling and (len(chosen) != 1 or chosen[0] not in _POOLING):
            raise SourceError(
                f"'{self._folder.text}' pools its vectors by {' and '.join(chosen) or 'nothing'}:"
                " export the whole with: optimum-cli export onnx --library sentence_transformers"
                " --model MODEL FOLDER"
            )
        kind = _POOLING[chosen[0]] if chosen else "mean"
        source = "1_Pooling/config.json" if pooling else "the usual one; nothing says it"
        self._draft.parameter("penstock.pooling", kind, f"{source}; of graphs without one")
        if not kinds or any(each.endswith(".Normalize") for each in kinds):
            source = "modules.json" if kinds else "the usual one; nothing says it"
            self._draft.parameter("penstock.normalize", "true", source)

    def _add_labels(self) -> None:
        labels = self._labels()
        self._draft.texts["../labels.txt"] = "\n".join(labels) + "\n"
        fields = f'name: "logits" data_type: TYPE_FP32 dims: [ {len(labels)} ]'
        self._draft.add(
            f'output [ {{ {fields} label_filename: "labels.txt" }} ]', "id2label of config.json"
        )

    def _images(self) -> None:
        """How images are read, as `preprocessor_config.json` has it for transformers."""
        if not self._draft.links:
            raise SourceError(
                f"'{self._folder.text}' has no graph: neither onnx/model.onnx nor"
                " openvino_model.xml; make one with: optimum-cli export onnx --model MODEL FOLDER"
            )
        fields = _image_fields(self._read("preprocessor_config.json"))
        self._draft.parameter("penstock.image", json.dumps(fields), "preprocessor_config.json")
        if self._architecture().endswith("Classification"):
            self._add_labels()

    # -- files ----------------------------------------------------------------------------------

    def _take(self, *names: str) -> None:
        self._draft.links |= self._folder.take(name for name in names if name in self._names)

    def _link(self, name: str, target: str) -> None:
        self._draft.links[target] = self._folder.take([name])[name]

    def _read(self, name: str) -> Any:
        """A file of JSON; an empty mapping if there is none."""
        if name not in self._names:
            return {}
        kind = list if name == "modules.json" else dict
        return json_object(self._folder.take([name])[name], kind)


def _image_fields(told: Mapping[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {"input": "pixel_values"}
    crops = bool(told.get("do_center_crop"))
    if told.get("do_resize", True) and (size := _size(told.get("size"), square=not crops)):
        fields["resize"] = size
    if told.get("do_center_crop") and (crop := _size(told.get("crop_size"), square=False)):
        fields["crop"] = crop
    number = told.get("resample")
    if isinstance(number, int) and 0 <= number < len(_FILTERS):
        fields["resample"] = _FILTERS[number]
    fields["scale"] = told.get("rescale_factor", 1 / 255) if told.get("do_rescale", True) else 1
    if told.get("do_normalize", True):
        fields |= {
            field: told[f"image_{field}"] for field in ("mean", "std") if f"image_{field}" in told
        }
    return fields


def _size(told: Any, *, square: bool) -> int | list[int] | None:
    """A length of the shorter side, or width and height; a number alone may be a `square`'s."""
    if isinstance(told, int):
        return [told, told] if square else told
    if isinstance(told, dict):
        if "shortest_edge" in told:
            return int(told["shortest_edge"])
        if "height" in told and "width" in told:
            return [int(told["width"]), int(told["height"])]
    return None
