"""Writes a model repository of small PyTorch models; run by a Python that has torch.

python make_models.py REPOSITORY
"""

# mypy: disable-error-code="misc"
# Its bases are of a library without types here.

import io
import json
import pickle
import sys
import warnings
import zipfile
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers

warnings.simplefilter("ignore")
REPOSITORY = Path(sys.argv[1])


def write(name: str, config: str) -> Path:
    """A model's folder; the path of its version."""
    version = REPOSITORY / name / "1"
    version.mkdir(parents=True)
    (REPOSITORY / name / "config.pbtxt").write_text(config)
    return version


def tensor(name: str, kind: str = "FP32", dims: str = "[ 4 ]") -> str:
    return f'{{ name: "{name}" data_type: TYPE_{kind} dims: {dims} }}'


def tensors(inputs: list[str], outputs: list[str], rows: int = 8, more: str = "") -> str:
    return (
        f'backend: "pytorch"\nmax_batch_size: {rows}\n'
        f"input [ {', '.join(inputs)} ]\noutput [ {', '.join(outputs)} ]\n{more}\n"
    )


def parameter(name: str, value: str) -> str:
    return f'parameters {{ key: "{name}" value {{ string_value: "{value}" }} }}\n'


class SumDifference(torch.nn.Module):
    def forward(self, left: torch.Tensor, right: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return left + right, left - right


class Keyed(torch.nn.Module):
    def forward(self, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
        return tensors["A"] - tensors["B"]


class TwoDictionaries(torch.nn.Module):
    def forward(self, a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> torch.Tensor:
        return a["A"] + b["B"]


class Number(torch.nn.Module):
    def forward(self, x: torch.Tensor, rate: int) -> torch.Tensor:
        return x * rate


class Louder(torch.nn.Module):
    def forward(self, texts: list[str]) -> list[str]:
        return [text + "!" for text in texts]


class InPlace(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mul_(2)


class Kept(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class Counted(torch.nn.Module):
    """Adds to a state, which the server keeps."""

    def forward(self, x: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        total = x + state
        return total, total


class Encoder(torch.nn.Module):
    """A vector of each text: the sum of its tokens, and their number."""

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        read = input_ids * attention_mask
        return torch.stack([read.sum(1), attention_mask.sum(1)], dim=1).float()


class Listed(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        return [x, x]


def script(module: torch.nn.Module, version: Path) -> None:
    torch.jit.script(module.eval()).save(str(version / "model.pt"))


two = [tensor("left"), tensor("right")]
script(SumDifference(), write("by_name", tensors(two, [tensor("sum"), tensor("difference")])))
script(
    SumDifference(),
    write(
        "by_index",
        tensors(
            [tensor("B__1"), tensor("A__0")],
            [tensor("D__1"), tensor("S__0")],
            more="dynamic_batching { max_queue_delay_microseconds: 20000 }",
        ),
    ),
)
script(
    SumDifference(),
    write("by_order", tensors([tensor("p"), tensor("q")], [tensor("s"), tensor("d")])),
)
script(Keyed(), write("keyed", tensors([tensor("B"), tensor("A")], [tensor("OUT")])))
script(
    Louder(),
    write(
        "texts", tensors([tensor("T", "STRING", "[ -1 ]")], [tensor("U", "STRING", "[ -1 ]")], 0)
    ),
)
script(InPlace(), write("in_place", tensors([tensor("x")], [tensor("y")])))
script(Kept(), write("bf16", tensors([tensor("x", "BF16")], [tensor("y", "BF16")])))
script(Kept(), write("wrong_type", tensors([tensor("x")], [tensor("y", "INT64")])))
script(Listed(), write("listed", tensors([tensor("x")], [tensor("y")])))
state = (
    'sequence_batching { state [ { input_name: "STATE__1" output_name: "STATE_OUT__1"'
    ' data_type: TYPE_FP32 dims: [ 4 ] initial_state { name: "zero" data_type: TYPE_FP32'
    " dims: [ 4 ] zero_data: true } } ] }"
)
script(Counted(), write("counted", tensors([tensor("IN__0")], [tensor("OUT__0")], more=state)))

script(
    Encoder(),
    version := write(
        "encoder",
        tensors(
            [tensor("TEXT", "STRING", "[ 1 ]")],
            [tensor("VECTOR", dims="[ 2 ]")],
            more=parameter("penstock.tokenizer", "tokenizer.json"),
        ),
    ),
)
words = {word: number for number, word in enumerate(("[UNK]", "one", "two", "three"))}
words_only = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
words_only.pre_tokenizer = pre_tokenizers.Whitespace()
words_only.save(str(version / "tokenizer.json"))

torch.manual_seed(1)
my_model = torch.nn.Sequential(torch.nn.Linear(128, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
version = write(
    "my_model",
    """name: "my_model"
backend: "pytorch"
max_batch_size: 16
input [ { name: "input__0" data_type: TYPE_FP32 dims: [ 128 ] } ]
output [ { name: "output__0" data_type: TYPE_FP32 dims: [ 10 ] } ]
dynamic_batching {
  preferred_batch_size: [ 4, 8, 16 ]
  max_queue_delay_microseconds: 10000
}
instance_group [ { count: 1 kind: KIND_CPU } ]
""",
)
torch.jit.trace(my_model.eval(), torch.zeros(1, 128)).save(str(version / "model.pt"))
sample = torch.linspace(-1, 1, 128).reshape(1, 128)
with torch.no_grad():
    (REPOSITORY / "expected.json").write_text(json.dumps(my_model(sample).tolist()))

# -- packages -------------------------------------------------------------------------------------

rows = {0: torch.export.Dim.AUTO}
exported = torch.export.export(
    SumDifference(),
    (torch.zeros(2, 4), torch.zeros(2, 4)),
    dynamic_shapes=(rows, rows),
)
platform = 'platform: "torch_aoti"'
torch.export.save(
    exported,
    write(
        "exported",
        tensors(
            [tensor("right"), tensor("left")],
            [tensor("RESULT[1]"), tensor("RESULT[0]")],
            more=platform,
        ),
    )
    / "model.pt2",
)


class Whole(torch.nn.Module):
    """Each row gets the sum of all rows of the batch."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(x) + x.sum(0, keepdim=True)


def summed(kind: torch.dtype) -> torch.export.ExportedProgram:
    return torch.export.export(Whole(), (torch.zeros(2, 4, dtype=kind),), dynamic_shapes=(rows,))


halves = tensors([tensor("x", "BF16")], [tensor("RESULT[0]", "BF16")], more=platform)
torch.export.save(summed(torch.bfloat16), write("whole_exported", halves) / "model.pt2")
if "--compile" in sys.argv:
    singles = tensors([tensor("ARGS[0]")], [tensor("RESULT[0]")], more=platform)
    summing = write("whole_compiled", singles) / "model.pt2"
    torch._inductor.aoti_compile_and_package(summed(torch.float32), package_path=str(summing))
    package = write(
        "compiled",
        tensors(
            [tensor("ARGS[1]"), tensor("ARGS[0]")],
            [tensor("RESULT[0]"), tensor("RESULT[1]")],
            more=platform,
        ),
    )
    torch._inductor.aoti_compile_and_package(exported, package_path=str(package / "model.pt2"))

# -- files as inputs ------------------------------------------------------------------------------


class Bright(torch.nn.Module):
    """The mean of each channel of an image, and the loudest sample of a sound's half."""

    def forward(self, pixels: torch.Tensor, sound: torch.Tensor) -> torch.Tensor:
        loud = sound.to(torch.float32).max(1, keepdim=True).values
        return torch.cat([pixels.to(torch.float32).mean((2, 3)), loud], dim=1)


image = (
    '{\\"input\\": \\"pixels\\", \\"resize\\": [8, 6], \\"scale\\": 1, \\"datatype\\": \\"BF16\\"}'
)
audio = '{\\"input\\": \\"sound\\", \\"rate\\": 8000, \\"datatype\\": \\"INT16\\"}'
script(
    Bright(),
    write(
        "bright",
        tensors(
            [tensor("pixels", "STRING", "[ 1 ]"), tensor("sound", "STRING", "[ 1 ]")],
            [tensor("y")],
            more=parameter("penstock.image", image) + parameter("penstock.audio", audio),
        ),
    ),
)

# -- weights that instances share -----------------------------------------------------------------


class Wide(torch.nn.Module):
    """Four MiB of weights that two layers use; it counts its runs in a buffer of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1024, 1024)
        self.other = torch.nn.Linear(1024, 1024, bias=False)
        self.other.weight = self.layer.weight
        self.register_buffer("runs", torch.zeros(4096))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.runs += 1
        return self.layer(x) + self.other(x), self.runs[:1].expand(x.shape[0], 1)


wide = Wide().eval()
tall = [tensor("x", dims="[ 1024 ]")]
wides = [tensor("y", dims="[ 1024 ]"), tensor("runs", dims="[ 1 ]")]
sharing = parameter("ENABLE_WEIGHT_SHARING", "true")
script(wide, write("wide", tensors(tall, wides)))
script(wide, write("wide_shared", tensors(tall, wides, more=sharing)))
torch.export.save(
    torch.export.export(wide, (torch.zeros(2, 1024),), dynamic_shapes=(rows,)),
    write("wide_exported", tensors(tall, wides, more=platform + "\n" + sharing)) / "model.pt2",
)

# -- modules in Python ----------------------------------------------------------------------------

MODULE = """
import torch
from torch.nn import Linear


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = Linear(4, 2)

    def forward(self, x):
        return self.layer(x), x.sum(1, keepdim=True)
"""
DISABLED = parameter("TORCH_COMPILE_OPTIONAL_PARAMETERS", r"{\"disable\": true}")
version = write(
    "in_python",
    tensors(
        [tensor("x")],
        [tensor("y", dims="[ 2 ]"), tensor("total", dims="[ 1 ]")],
        more='runtime: "model.py"\n' + DISABLED,
    ),
)
(version / "model.py").write_text(MODULE)
layer = torch.nn.Linear(4, 2)
with torch.no_grad():
    layer.weight.fill_(1)
    layer.bias.copy_(torch.tensor([0.0, 10.0]))
torch.save(
    {f"layer.{name}": value for name, value in layer.state_dict().items()}, version / "model.pt"
)

COUNTING = """
import torch


class Threads(torch.nn.Module):
    def forward(self, x):
        optimized = torch._C._get_graph_executor_optimize()
        return torch.tensor(
            [[torch.get_num_threads(), torch.is_inference_mode_enabled(), optimized]],
            dtype=torch.int64,
        )
"""
switches = parameter("INTRA_OP_THREAD_COUNT", "3") + parameter("INFERENCE_MODE", "false")
switches += parameter("DISABLE_CUDNN", "true") + parameter("DISABLE_OPTIMIZED_EXECUTION", "true")
version = write(
    "switches",
    tensors([tensor("x")], [tensor("y", "INT64", "[ 3 ]")], more=switches + DISABLED),
)
(version / "model.py").write_text(COUNTING)

UNRULY = """
import ctypes

import torch


class Unruly(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.kept = []

    def forward(self, x):
        if x.min() < 0:
            ctypes.string_at(0)
        if x.max() > 100:
            self.kept.append(torch.empty(1 << 28))
        return x
"""
limit = parameter("penstock.memory_limit_bytes", str(6 << 30))
version = write("unruly", tensors([tensor("x")], [tensor("y")], more=DISABLED + limit))
(version / "model.py").write_text(UNRULY)

# -- what is refused ------------------------------------------------------------------------------

one = tensors([tensor("x")], [tensor("y")])
script(
    TwoDictionaries(), write("two_dictionaries", tensors([tensor("A"), tensor("B")], [tensor("y")]))
)
script(Number(), write("number", one))
script(Kept(), write("too_many", tensors([tensor("x"), tensor("y")], [tensor("z")])))
(write("damaged", one) / "model.pt").write_bytes(b"no model")
script(Kept(), version := write("truncated", one))
whole = (version / "model.pt").read_bytes()
(version / "model.pt").write_bytes(whole[: len(whole) // 2])
torch.save(torch.nn.ReLU(), write("pickled", one) / "model.pt")
torch.save({"a": torch.zeros(1)}, write("weights_only", one) / "model.pt")


class Hostile:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return eval, (f"open({str(REPOSITORY / 'hacked')!r}, 'w').close()",)


(write("hostile", one) / "model.pt").write_bytes(pickle.dumps(Hostile()))
torch.save(Hostile(), write("hostile_archive", one) / "model.pt")
# A package as it was exported, but for the pickles in it, which its own loader would run.
hostile = io.BytesIO()
torch.save(Hostile(), hostile)
written = REPOSITORY / "exported" / "1" / "model.pt2"
with (
    zipfile.ZipFile(written) as whole_package,
    zipfile.ZipFile(write("hostile_package", one) / "model.pt", "w") as package_of_strangers,
):
    for member in whole_package.namelist():
        content = hostile.getvalue() if member.endswith(".pt") else whole_package.read(member)
        package_of_strangers.writestr(member, content)

for name, member in (("climbing", "m/../../hacked"), ("bomb", "m/data/0")):
    path = write(name, one) / "model.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, bytes(100 << 20 if name == "bomb" else 1))
write("without_file", one)
write("without_tensors", 'backend: "pytorch"\nmax_batch_size: 8\n')
