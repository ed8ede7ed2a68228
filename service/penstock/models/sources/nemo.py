"""NeMo's archives (`.nemo`): what they hold, and the command that makes a model of one.

Weights in them are pickles behind NeMo's own classes, so nothing but NeMo can read them. The
archive is read under limits, and nothing of it is unpacked or run.
"""

from __future__ import annotations

import re
import shlex
import tarfile
from pathlib import Path

from penstock.models.sources.draft import SourceError

_MOST_MEMBERS = 10_000
_LONGEST_TEXT = 1 << 20
_CONFIG = re.compile(r"(?:.*/)?(?:\w+_)?model_config\.yaml")
_TARGET = re.compile(rb"^target: *['\"]?([\w.]+)", re.MULTILINE)
_LANGUAGE_MODELS = ".nlp.models.language_modeling."


def refuse_nemo(path: Path) -> None:
    """Raise `SourceError` with the command of NeMo that makes a model of the archive."""
    target = _target(path)
    written = shlex.quote(str(path))
    if _LANGUAGE_MODELS in target:
        code = (
            "from nemo.export.tensorrt_llm import TensorRTLLM; "
            f"TensorRTLLM('engines').export({str(path)!r}, 'llama', tensor_parallelism_size=1)"
        )
        then = (
            "penstock import engines REPOSITORY (NeMo's name of the architecture, here 'llama', and"
            " the number of GPUs are yours to set)"
        )
    else:
        code = (
            "from nemo.core import ModelPT; "
            f"ModelPT.restore_from({str(path)!r}, map_location='cpu').export('{path.stem}.onnx')"
        )
        then = f"penstock import {shlex.quote(path.stem + '.onnx')} REPOSITORY"
    raise SourceError(
        f"{written} is a model of NeMo ({target}), which only NeMo can read. In an environment with"
        f' nemo_toolkit run:\n\n    python -c "{code}"\n\nand then: {then}'
    )


def _target(path: Path) -> str:
    """The class of the model, by the archive's configuration."""
    try:
        with tarfile.open(path, "r:*") as archive:
            for number, member in enumerate(archive):
                if number == _MOST_MEMBERS:
                    raise SourceError(f"'{path}' has more than {_MOST_MEMBERS:,} members")
                if not (member.isfile() and _CONFIG.fullmatch(member.name)):
                    continue
                file = archive.extractfile(member)
                found = _TARGET.search(file.read(_LONGEST_TEXT)) if file else None
                if found:
                    return found[1].decode()
    except FileNotFoundError as error:
        raise SourceError(f"there is no file '{path}'") from error
    except (tarfile.TarError, EOFError, OSError) as error:
        raise SourceError(f"'{path}' is no archive of NeMo: {error}") from error
    raise SourceError(f"'{path}' is no archive of NeMo: it has no model_config.yaml with a target")
