"""Grammars of a client's own: what the engine keeps to, and what never reaches it."""

from __future__ import annotations

import json
import re
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backends.generation import start
from backends.openvino_genai.asking import ask
from harness.examples import examples
from penstock.core.errors import InvalidRequestError
from penstock.testing import RunningInstance
from penstock_backends.openvino_genai.pipeline import GenAiPipeline
from penstock_backends.openvino_genai.sampling import read_sampling
from penstock_backends.openvino_genai.settings import read_settings
from penstock_backends.openvino_genai.structure import Structure, read_structure

pytest.importorskip("openvino_genai", reason="OpenVINO GenAI is not installed")

SUMS = """\
# A sum of products
root ::= term (("+" | "-") term){1,2} ";"
term ::= factor ("*" factor)?
factor ::= [0-9]{1,3} |
           "(" factor ")"
"""
SELECT = """
root ::= "SELECT " columns " FROM " name where? ";"
columns ::= "*" | name (", " name)?
where ::= " WHERE " name " " ("<" | "<=" | "=") " " [0-9]{1,3}
name ::= [a-z_] [a-z0-9_]{0,5}
"""
WORDS = r"""
root ::= "[" word ("," word){1,3} "]"
word ::= "\"" [^"\\\x01-\x1F\u007f-\U0010FFFF]{1,6} "\""
"""
BRACKETS = 'root ::= pair{3}\npair ::= "(" pair? ")"'


def _balanced(text: str) -> bool:
    while "()" in text:
        text = text.replace("()", "")
    return not text.strip("(")


def _select(text: str) -> bool:
    name = "[a-z_][a-z0-9_]{0,5}"
    where = rf"( WHERE {name} (<|<=|=) \d{{1,3}})?"
    return bool(re.fullmatch(rf"SELECT (\*|{name}(, {name})?) FROM {name}{where};", text))


@pytest.mark.parametrize(
    ("grammar", "kept"),
    [
        (SUMS, lambda text: re.fullmatch(r"[0-9+*()-]+;", text)),
        (SELECT, _select),
        (WORDS, lambda text: 2 <= len(json.loads(text)) <= 4),
        (BRACKETS, _balanced),
        (r'root ::= "\u00e9\n" ["\]\^\-a] ()', lambda text: re.fullmatch('é\n["\\]^a-]', text)),
    ],
)
@pytest.mark.parametrize("temperature", [0, 1.5])
async def test_a_grammar_is_kept_to(
    instance: RunningInstance, grammar: str, kept: Any, temperature: float
) -> None:
    sampling: dict[str, Any] = {"temperature": temperature, "max_tokens": 200, "seed": 5}
    structure = {"grammar": grammar}
    reply = await ask(instance, ignore_eos=False, structured_outputs=structure, **sampling)
    assert kept(reply.text)


@pytest.mark.parametrize(
    ("grammar", "why"),
    [
        (7, "must have a text as grammar"),
        ("", "must have a text as grammar"),
        ("# nothing", "without a rule 'root'"),
        ('top ::= "a"', "without a rule 'root'"),
        ('"a"', "line 1 must begin a rule"),
        ('root = "a"', "line 1 cannot be read from '= \"a\"' on"),
        ('root "a"', "line 1 must have '::=' after the name 'root'"),
        ("root ::=", "line 1 must have a literal, a class, a rule's name or a group"),
        ('root ::= "a" |', "line 1 must have a literal"),
        ('root ::= "a\n"', "line 1 cannot be read from"),
        ("root ::= [a", "line 1 cannot be read from"),
        ('root ::= ("a"\nb ::= "b"', r"line 2 must have '\)' for the group of line 1"),
        ('root ::= "a")', "line 1 must begin a rule"),
        ('root ::= "a" (= "b")', "line 1 cannot be read from '= \"b\"\\)' on"),
        ('root ::= "a"*?', "line 1 must have a literal"),
        ('root ::= "a"{3 4}', "a count '.3 4.' without a comma"),
        ('root ::= "a"{,4}', "line 1 cannot be read"),
        ('root ::= "a"{4,3}', "a count '.4,3.' that is never reached"),
        ('root ::= "a"{0}', "a count '.0.' that is never reached"),
        ('root ::= "a"{101}', "repeats more than 100 times"),
        (r'root ::= "\q"', r"an unknown escape in '\"\\\\q\"'"),
        (r'root ::= "\x1"', "an unknown escape"),
        (r'root ::= "\x411"', "an unknown escape"),
        (r"root ::= [\d]", "an unknown escape"),
        (r'root ::= "\ud800"', "a code that is no character"),
        (r'root ::= "\x00"', "a code that is no character"),
        (r'root ::= "\U00110000"', "a code that is no character"),
        ("root ::= []", "an empty class"),
        ("root ::= [z-a]", "a range from high to low"),
        (r"root ::= [^\x01-\U0010ffff]", "a class that no character is in"),
        ('root ::= "a"\nroot ::= "b"', "line 2 has a rule 'root' which is defined twice"),
        ('root ::= "a" b ::= "b"', "line 1 has a rule 'b' which must begin in a line"),
        ("root ::= \n other", "line 2 has no rule of its name 'other'"),
        ('root ::= Token(5) "a"', "line 1 cannot be read"),
        ('root ::= root "a" | "b"', "rule 'root' begins with itself"),
        ('root ::= b\nb ::= "c"? root', "rule '(root|b)' begins with itself"),
        ("root ::= root", "rule 'root' begins with itself"),
        ("root ::= " + "[a-z]? " * 40, "next character, 'a', does not decide whether a repetition"),
        ("root ::= [a-z] root root | [b-d]", "'b', does not decide which part of a choice fits"),
        ('root ::= ("<" | "<=") "="', "next character, '=', does not decide which part"),
        ('root ::= "a"{1,3} "a"', "does not decide whether a repetition goes on"),
        ('root ::= ("a" | "" | "b"?)', "several parts may be empty"),
        ('root ::= ("a"*)*', "repeats what may be empty"),
        ("root ::= " + "(" * 33 + '"a"' + ")" * 33, "nests groups more than 32 deep"),
        ("\n".join(["root ::= r0", *(f"r{n} ::= r{n + 1}" for n in range(200))]), "of 201 rules"),
        ('root ::= "' + "a" * 8182 + '"', "a grammar of 8193 characters, more than 8192"),
        ("root ::= " + '[a-z]{100} "A" ' * 3, "of the size 9603, more than 8192"),
        ('root ::= ("a"{1,50} "b"){1,50}', "come to 2500, more than 1000"),
    ],
)
def test_a_grammar_that_might_hold_up_the_engine_is_refused(grammar: Any, why: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"'structured_outputs' .*({why})"):
        read_structure({"grammar": grammar})


async def test_streams_go_on_while_a_grammar_is_refused(instance: RunningInstance) -> None:
    async with aclosing(start(instance, max_tokens=60)) as stream:
        await anext(stream)
        with pytest.raises(InvalidRequestError, match="does not decide"):
            await ask(instance, structured_outputs={"grammar": "root ::= [a-z]* [a-z]*"})
        rest = [response async for response in stream]
    assert rest[-1].final


def test_a_grammar_is_written_anew() -> None:
    """Common beginnings of literals are taken out, and rules have names of ours."""
    given = 'root ::= my-rule "1"\nmy-rule ::= "a" | "ab" | [c-d]{2}'
    assert read_structure({"grammar": given}) == Structure(
        grammar='root ::= r1 "1"\nr1 ::= ("a" ("" | "b") | ([c-d]){2,2})'
    )


# -- any grammar -----------------------------------------------------------------------------------


_LEAVES = st.sampled_from(
    ['"a"', '"ab"', '"b"', '"<="', '"<"', '""', "[a-c]", "[^a-z]", r"[\]\n\u00e9-]", "x", "y", "()"]
)
_PARTS = st.recursive(
    _LEAVES,
    lambda part: st.one_of(
        st.lists(part, min_size=1, max_size=3).map(" ".join),
        st.lists(part, min_size=1, max_size=3).map(lambda parts: f"({' | '.join(parts)})"),
        st.tuples(part, st.sampled_from(["?", "*", "+", "{2}", "{1,}", "{0,3}"])).map(
            lambda both: f"({both[0]}){both[1]}"
        ),
    ),
    max_leaves=6,
)
_GRAMMARS = st.tuples(_PARTS, _PARTS, _PARTS).map(
    lambda rules: f"root ::= {rules[0]}\nx ::= {rules[1]} # x\ny ::=\n  {rules[2]}"
)


def _read(grammar: str) -> Structure | None:
    try:
        return read_structure({"grammar": grammar})
    except InvalidRequestError:
        return None


@given(st.one_of(_GRAMMARS, st.text(), st.text(alphabet='ro:=t"[]()|*?+{}1,-^\\ \n#x')))
def test_a_text_is_read_or_refused(grammar: str) -> None:
    _read(grammar)
    _read(f"root ::= {grammar}")


@settings(
    max_examples=examples(30),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)
@given(_GRAMMARS.map(_read).filter(bool))
def test_the_engine_compiles_what_is_accepted(engine: GenAiPipeline, structure: Structure) -> None:
    sampling = replace(_SAMPLING, structure=structure)
    handle = engine.add([5, 6, 7], sampling, logprobs=False)
    output = None
    while output is None or output.finish_reason is None:
        engine.step()
        output = handle.read()
    assert not output.lost
    assert output.finish_reason in ("stop", "length")


@pytest.fixture(scope="module")
def engine(gguf_version: Path) -> GenAiPipeline:
    return GenAiPipeline(read_settings(gguf_version))


_SAMPLING = read_sampling({"max_tokens": 8}, vocabulary=4096, max_num_seqs=1, top_k_cap=0)
