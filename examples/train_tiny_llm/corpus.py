"""The training text: what Python's standard library says about itself, as plain prose."""

import ast
import importlib
import inspect
import re
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

_SKIPPED_FOLDERS = {"__pycache__", "site-packages"}
# Modules written in C have no source here; their docstrings are read by importing them.
_COMPILED = """array atexit binascii builtins cmath errno faulthandler gc itertools marshal math
    posix select signal sys time unicodedata zlib _asyncio _bisect _codecs _collections _csv
    _datetime _functools _heapq _io _json _operator _pickle _random _socket _sqlite3 _sre _ssl
    _struct _thread _weakref""".split()
_CODE_MARKS = re.compile(r">>>|\.\.\. |::=|->|==|[{}|\\^~$]|__\w+__\(|\w\(.*\w=")
_PROSE_CHARACTERS = re.compile(r"[A-Za-z ,.'\"]")

Definition = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def documents() -> list[str]:
    """Every prose text of the standard library, in a fixed order, without repetitions."""
    texts = [*_topics(), *_compiled_docstrings()]
    for _, source in _sources():
        texts += (docstring for _, docstring in _docstrings(source))
        texts += _comments(source)
    return _without_repetition(prose(text) for text in texts)


def questions() -> dict[str, str]:
    """`What does X do?` with its answer, for the public functions of the public modules."""
    answers = {}
    for module, source in _sources():
        if re.search(r"\b_|\btest|^idlelib|^lib2to3|^turtledemo", module):
            continue
        for name, docstring in _docstrings(source):
            summary = prose(docstring).split("\n\n")[0]
            if name and not name.startswith("_") and len(summary) < 300:
                answers[f"What does {module}.{name} do?"] = summary
    return {question: answer for question, answer in answers.items() if answer}


def prose(text: str) -> str:
    """The paragraphs of `text` that are sentences, each on a line of its own."""
    paragraphs = re.split(r"\n\s*\n", inspect.cleandoc(text))
    lines = (" ".join(paragraph.split()) for paragraph in paragraphs)
    return "\n\n".join(line for line in lines if _is_prose(line))


def _is_prose(line: str) -> bool:
    if len(line) < 30 or not line.isascii() or not line.isprintable() or _CODE_MARKS.search(line):
        return False
    return (
        len(_PROSE_CHARACTERS.findall(line)) > 0.9 * len(line)
        and len(line) < 9 * len(line.split())
        and line[-1] in ".:!?)"
    )


def _without_repetition(texts: Iterable[str]) -> list[str]:
    """Paragraphs that copy an earlier one say nothing new and would be learnt by heart."""
    seen: set[str] = set()
    kept = []
    for text in texts:
        fresh = [part for part in text.split("\n\n") if part and part not in seen]
        seen.update(fresh)
        if fresh:
            kept.append("\n\n".join(fresh))
    return kept


def _topics() -> Iterator[str]:
    """The language reference, as `help("TOPIC")` shows it."""
    topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    for name in sorted(topics):
        yield re.sub(r'[*"]([\w.]+)[*"]', r"\1", topics[name])  # marks around names


def _compiled_docstrings() -> Iterator[str]:
    for name in _COMPILED:
        module = importlib.import_module(name)
        yield inspect.getdoc(module) or ""
        for _, value in sorted(vars(module).items()):
            if callable(value):
                yield inspect.getdoc(value) or ""
            if inspect.isclass(value):
                for _, member in sorted(vars(value).items()):
                    yield inspect.getdoc(member) or ""


def _sources() -> Iterator[tuple[str, str]]:
    """Name and text of every module that is written in Python."""
    root = Path(sysconfig.get_path("stdlib"))
    for path in sorted(root.rglob("*.py")):
        place = path.relative_to(root)
        if not _SKIPPED_FOLDERS.intersection(place.parts):
            module = ".".join(place.with_suffix("").parts).removesuffix(".__init__")
            yield module, path.read_text("utf-8", "ignore")


def _docstrings(source: str) -> Iterator[tuple[str, str]]:
    """Name (empty for the module) and docstring of every definition."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):  # some tests are wrong on purpose
        return
    for node in ast.walk(tree):
        if isinstance(node, Definition):
            yield getattr(node, "name", ""), ast.get_docstring(node) or ""


def _comments(source: str) -> Iterator[str]:
    """Blocks of comment lines, which hold much of the library's explanations."""
    for block in re.findall(r"(?:^[ \t]*# ?.*\n){2,}", source, flags=re.MULTILINE):
        yield re.sub(r"^[ \t]*# ?", "", block, flags=re.MULTILINE)
