"""Writes a repository of small networks for a GPU; run in a process of its own, as it has PyTorch.

python make_models.py REPOSITORY [--compile]
"""

# mypy: disable-error-code="misc"
# Its bases are of a library without types here. Annotations are evaluated: TorchScript reads them.

import signal
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import torch

warnings.simplefilter("ignore")
ON_GPU = "instance_group [ { count: 1 kind: KIND_GPU gpus: [ 0 ] } ]"
EAGER = (
    'parameters { key: "TORCH_COMPILE_OPTIONAL_PARAMETERS"'
    ' value { string_value: "{\\"disable\\": true}" } }'
)
THREAD = 'parameters { key: "penstock.host" value { string_value: "thread" } }'


def tensor(name: str, kind: str = "FP32", dims: str = "[ -1 ]") -> str:
    return f'{{ name: "{name}" data_type: TYPE_{kind} dims: {dims} }}'


ONE_IN, ONE_OUT = (tensor("INPUT__0"),), (tensor("OUTPUT__0"),)


def write(
    name: str,
    inputs: tuple[str, ...] = ONE_IN,
    outputs: tuple[str, ...] = ONE_OUT,
    *,
    backend: str = "pytorch",
    rows: int = 64,
    more: str = ON_GPU,
) -> Path:
    """A model's folder with its configuration; the path of its version."""
    version = Path(sys.argv[1]) / name / "1"
    version.mkdir(parents=True)
    (version.parent / "config.pbtxt").write_text(
        f'backend: "{backend}"\nmax_batch_size: {rows}\n'
        f"input [ {', '.join(inputs)} ]\noutput [ {', '.join(outputs)} ]\n{more}\n"
    )
    return version


def script(module: torch.nn.Module, version: Path) -> None:
    torch.jit.script(module.eval()).save(str(version / "model.pt"))


def in_python(name: str, source: str, outputs: tuple[str, ...], more: str) -> None:
    version = write(name, ONE_IN, outputs, more=f"{more}\n{EAGER}")
    (version / "model.py").write_text(source)


def network() -> torch.nn.Module:
    """The same one each time: 64 numbers to 8."""
    torch.manual_seed(1)
    layers = torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8)
    return torch.nn.Sequential(*layers).eval()


class Where(torch.nn.Module):
    """The number of the device that the input is on; -1 is the CPU."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.full_like(x, float(x.get_device()))


class Filling(torch.nn.Module):
    """Takes as many MiB of the device as the first element says, and gives them back."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        taken = torch.zeros([int(x[0, 0].item()) * 262144], device=x.device)
        return x + taken[:1]


class Twice(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + x


class PlusOne(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


class Deep(torch.nn.Module):
    """Many small layers: a run takes as long for one row as for sixty-four."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        layers = [torch.nn.Linear(256, 256) for _ in range(96)]
        for layer in layers:  # so that what goes in is still seen in what comes out
            torch.nn.init.orthogonal_(layer.weight)
        self.layers = torch.nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.layers(x))


NETWORK = """
import torch


class Net(torch.nn.Sequential):
    def __init__(self):
        layers = torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8)
        super().__init__(*layers)
"""

PROCESS = """
import os
import torch


class Held(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("held", torch.zeros({elements}), persistent=False)

    def forward(self, x):
        return x + os.getpid(), x * 0 + x.get_device() + self.held[:1]
"""

FILLING = """
import torch


class Filling(torch.nn.Module):
    def forward(self, x):
        taken = torch.zeros(int(x[0, 0].item()) * 262144, device=x.device)
        return x + taken[:1]
"""

CALLS = """
import torch
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        given = pb_utils.get_input_tensor_by_name(request, "INPUT__0")
        x = torch.from_dlpack(given).to("cuda:0", torch.{kind})
        call = pb_utils.InferenceRequest(
            model_name="{called}",
            requested_output_names=["OUTPUT__0"],
            inputs=[pb_utils.Tensor.from_dlpack("INPUT__0", x)],
        )
        response = call.exec()
        if response.has_error():
            return pb_utils.InferenceResponse(error=response.error())
        y = pb_utils.get_output_tensor_by_name(response, "OUTPUT__0")
        y = torch.from_dlpack(y).to("cuda:0").float() + 1
        return pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("OUTPUT__0", y)])
"""


def write_networks() -> None:
    """One network in each format that needs no compiler, and what it answers on the CPU."""
    script(network(), write("script"))
    rows = {0: torch.export.Dim.AUTO}
    exported = torch.export.export(network(), (torch.zeros(2, 64),), dynamic_shapes=(rows,))
    platform = f'platform: "torch_aoti"\n{ON_GPU}'
    torch.export.save(exported, write("exported", more=platform) / "model.pt2")
    version = write("in_python", more=f'runtime: "model.py"\n{ON_GPU}\n{EAGER}')
    (version / "model.py").write_text(NETWORK)
    torch.save(network().state_dict(), version / "model.pt")
    x = torch.linspace(-1, 1, 5 * 64).reshape(5, 64)
    with torch.no_grad():
        np.savez(Path(sys.argv[1]) / "expected.npz", x=x.numpy(), y=network()(x).numpy())


def write_compiled() -> None:
    """The same network compiled here for this GPU, and one that its process compiles.

    Where a process with nothing but PyTorch dies of loading the package, `dies` beside it says how.
    """
    rows = {0: torch.export.Dim.AUTO}
    sample = torch.zeros(2, 64, device="cuda:0")
    exported = torch.export.export(network().to("cuda:0"), (sample,), dynamic_shapes=(rows,))
    package = write("compiled", more=f'platform: "torch_aoti"\n{ON_GPU}') / "model.pt2"
    torch._inductor.aoti_compile_and_package(exported, package_path=str(package))
    load = f"import torch; torch._inductor.aoti_load_package({str(package)!r})"
    status = subprocess.run([sys.executable, "-c", load]).returncode
    if status < 0:
        package.with_name("dies").write_text(signal.Signals(-status).name)
    version = write("compiled_at_load", more=f'runtime: "model.py"\n{ON_GPU}')
    (version / "model.py").write_text(NETWORK)
    torch.save(network().state_dict(), version / "model.pt")


def write_placed() -> None:
    """A model for each way to say where it is to be."""
    for name, group in {
        "on_gpu": "kind: KIND_GPU gpus: [ 0 ]",
        "on_any_gpu": "kind: KIND_GPU",
        "on_auto": "kind: KIND_AUTO",
        "on_cpu": "kind: KIND_CPU",
        "on_its_choice": "kind: KIND_MODEL",
        "on_missing": "kind: KIND_GPU gpus: [ 99 ]",
    }.items():
        script(Where(), write(name, more=f"instance_group [ {{ {group} }} ]"))


def write_shared() -> None:
    """Models that take memory, and that say which process has answered."""
    both = tensor("OUTPUT__0"), tensor("OUTPUT__1")
    two = "instance_group [ { count: 2 kind: KIND_GPU gpus: [ 0 ] } ]"
    in_python("pair", PROCESS.format(elements=1), both, two)
    in_python("held", PROCESS.format(elements=1 << 28), both, ON_GPU)
    in_python("filling_in_python", FILLING, ONE_OUT, ON_GPU)
    script(Filling(), write("filling"))
    delay = "dynamic_batching { max_queue_delay_microseconds: 2000 }"
    script(Deep(), write("alone"))
    script(Deep(), write("batched", more=f"{ON_GPU}\n{delay}"))


def write_chained() -> None:
    """Models that call others, and ensembles."""
    script(Twice(), write("twice"))
    script(PlusOne(), write("plus_one"))
    bf16 = (tensor("INPUT__0", "BF16"),), (tensor("OUTPUT__0", "BF16"),)
    script(Twice(), write("twice_bf16", *bf16))
    for called, kind in (("twice", "float32"), ("twice_bf16", "bfloat16")):
        version = write(f"calls_{called}", backend="python")
        (version / "model.py").write_text(CALLS.format(called=called, kind=kind))
    write("chain", backend="", more=steps("twice", "plus_one"))
    delay = "dynamic_batching { max_queue_delay_microseconds: 2000 }"
    for module in (Twice(), PlusOne()):
        name = f"{type(module).__name__.lower()}_on_a_thread"
        script(module, write(name, more=f"{ON_GPU}\n{delay}\n{THREAD}"))
    on_threads = steps("twice_on_a_thread", "plusone_on_a_thread")
    write("chain_on_threads", backend="", more=on_threads)
    for name in ("first", "second"):
        outputs = tensor("OUTPUT__0"), tensor("WAS_THERE", "BOOL", "[ 1 ]")
        write(name, ONE_IN, outputs, backend="on_the_device")
    last = tensor("OUTPUT__0"), tensor("WAS_THERE", "BOOL", "[ 1 ]")
    was_there = 'output_map { key: "WAS_THERE" value: "WAS_THERE" }'
    write("chain_on_device", ONE_IN, last, backend="", more=steps("first", "second", was_there))


def steps(first: str, second: str, more: str = "") -> str:
    """The steps of an ensemble of two, with one tensor between them."""
    return (
        "ensemble_scheduling { step [ { "
        f'model_name: "{first}" model_version: -1'
        ' input_map { key: "INPUT__0" value: "INPUT__0" }'
        ' output_map { key: "OUTPUT__0" value: "between" } }, { '
        f'model_name: "{second}" model_version: -1'
        ' input_map { key: "INPUT__0" value: "between" }'
        f' output_map {{ key: "OUTPUT__0" value: "OUTPUT__0" }} {more} }} ] }}'
        '\nplatform: "ensemble"'
    )


if __name__ == "__main__":
    if "--compile" in sys.argv:
        write_compiled()
    else:
        write_networks()
        write_placed()
        write_shared()
        write_chained()
