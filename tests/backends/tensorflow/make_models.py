"""Writes a model repository of small TensorFlow models; run by a Python that has TensorFlow.

python make_models.py REPOSITORY
"""

# mypy: disable-error-code="misc, untyped-decorator"
# Its bases and decorators are of a library without types here.

import json
import os
import sys
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import tensorflow as tf

v1 = tf.compat.v1
REPOSITORY = Path(sys.argv[1])
GRAPHDEF = 'platform: "tensorflow_graphdef"\n'
SAVED = 'platform: "tensorflow_savedmodel"\n'


def write(name: str, config: str) -> Path:
    """A model's folder; the path of its version."""
    version = REPOSITORY / name / "1"
    version.mkdir(parents=True)
    # Each instance is a process that imports TensorFlow, and two are the default.
    one = "instance_group { kind: KIND_CPU count: 1 }\n"
    (REPOSITORY / name / "config.pbtxt").write_text(config + one)
    return version


def tensor(field: str, name: str, kind: str, dims: str = "[ 2 ]") -> str:
    return f'{field} {{ name: "{name}" data_type: TYPE_{kind} dims: {dims} }}\n'


def parameter(name: str, value: str) -> str:
    return f'parameters {{ key: "{name}" value {{ string_value: "{value}" }} }}\n'


class Several(tf.Module):
    """Several signatures: numbers, strings, and a table from strings to numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = tf.Variable(2.0)
        keys = tf.lookup.KeyValueTensorInitializer(["red", "green"], tf.constant([1, 2], tf.int64))
        self.table = tf.lookup.StaticHashTable(keys, -1)

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, "x")])
    def product(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": x * self.factor}

    @tf.function(input_signature=[tf.TensorSpec([None, 1], tf.string, "text")])
    def upper(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"shout": tf.strings.upper(text), "number": self.table.lookup(text)}


def save_several(path: Path) -> None:
    made = Several()
    tf.saved_model.save(
        made, str(path), signatures={"serving_default": made.product, "upper": made.upper}
    )


def save_tagged(path: Path, tag: str, addend: float, kind: tf.DType = tf.float32) -> None:
    """A model of TensorFlow 1, with one signature of another name than the default."""
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(kind, [None, 2], "x")
        y = tf.add(x, v1.Variable(tf.constant(addend, kind), name="addend"), "y")
        session.run(v1.global_variables_initializer())
        signature = v1.saved_model.predict_signature_def({"x": x}, {"y": y})
        builder = v1.saved_model.Builder(str(path))
        builder.add_meta_graph_and_variables(session, [tag], {"only": signature})
        builder.save()


def save_graph(path: Path, rank: list[int | None] | None, *, initialised: bool) -> None:
    """A GraphDef; with a variable, which an operator sets, or a constant."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, rank, "x")
        v1.placeholder_with_default(tf.constant(1.0), [], "unused")
        if initialised:
            addend = v1.get_variable("v", initializer=tf.constant(5.0), use_resource=True)
            v1.global_variables_initializer()
            tf.add(x, addend, "y")
        else:
            tf.add(x, tf.constant(5.0), "y")
            tf.split(x, 2, axis=1, name="halves")
    path.write_bytes(graph.as_graph_def().SerializeToString())


save_several(write("completed", "") / "model.savedmodel")
upper = parameter("TF_SIGNATURE_DEF", "upper")
save_several(write("upper", SAVED + upper) / "model.savedmodel")

tagged = parameter("TF_GRAPH_TAG", "other") + parameter("TF_NUM_INTRA_THREADS", "1")
save_tagged(write("tagged", SAVED + tagged) / "model.savedmodel", "other", 3.0)
save_tagged(write("untagged", SAVED) / "model.savedmodel", "other", 3.0)
save_tagged(write("halved", SAVED) / "model.savedmodel", "serve", 0.5, tf.bfloat16)

declared = GRAPHDEF + "max_batch_size: 4\n" + tensor("input", "x", "FP32")
graph = declared + tensor("output", "y", "FP32") + tensor("output", "halves:1", "FP32", "[ 1 ]")
save_graph(write("graph", graph) / "model.graphdef", [None, 2], initialised=False)
unknown = declared + tensor("output", "z", "FP32")
save_graph(write("unknown", unknown) / "model.graphdef", [None, 2], initialised=False)
starts = declared + tensor("output", "y", "FP32") + parameter("TF_INIT_OPS_FILE", "init_ops.json")
version = write("initialised", starts)
save_graph(version / "model.graphdef", None, initialised=True)
(version.parent / "init_ops.json").write_text(json.dumps({"init_ops": ["no such operator"]}))
(version / "init_ops.json").write_text(json.dumps({"init_ops": ["init"]}))
version = write("uninitialised", declared + tensor("output", "y", "FP32"))
save_graph(version / "model.graphdef", None, initialised=True)
(write("garbage", graph) / "model.graphdef").write_bytes(b"\x00no graph")
