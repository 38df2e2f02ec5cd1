"""The reference has all public names, and their docstrings follow the NumPy style."""

import ast
import inspect
import io
import pathlib
import re
import tokenize

import pytest

import meshloom
from meshloom import fft, inference, jax, operators, plot, torch

DOCS = pathlib.Path(__file__).parent.parent / "docs"
MODULES = [meshloom, fft, inference, jax, operators, plot, torch]
PUBLIC = [(module, name) for module in MODULES for name in module.__all__ if not inspect.ismodule(getattr(module, name))]
# These are functions of NumPy, or are listed with another module.
ELSEWHERE = {"fftfreq", "rfftfreq", "fftshift", "ifftshift"}


def pages():
    """Names by the module that a page lists them under."""
    found = {}
    for page in DOCS.glob("*.rst"):
        module = None
        for line in page.read_text().splitlines():
            if entry := re.match(r"\.\. currentmodule:: (\S+)", line):
                module = entry[1]
            elif entry := re.match(r"\.\. auto(?:function|class|exception):: (\w+)", line):
                found.setdefault(module, []).append(entry[1])
    return found


def test_the_reference_lists_every_public_name_once():
    found = pages()
    for module in MODULES:
        names = [name for owner, name in PUBLIC if owner is module and name not in ELSEWHERE]
        # `optimize_kl` is in both modules and documented in one.
        names = [name for name in names if (module, name) != (meshloom, "optimize_kl")]
        listed = found.pop(module.__name__)
        missing = set(names) - set(listed)
        assert not missing and len(set(listed)) == len(listed), (module, missing)
    assert not found


def members():
    """Public functions, classes and methods with their names."""
    for module, name in PUBLIC:
        thing = getattr(module, name)
        if name in ELSEWHERE:
            continue
        yield f"{module.__name__}.{name}", thing
        if inspect.isclass(thing):
            for member, value in vars(thing).items():
                if not member.startswith("_") and inspect.isfunction(value):
                    yield f"{module.__name__}.{name}.{member}", value


@pytest.mark.parametrize("name, thing", [pytest.param(*pair, id=pair[0]) for pair in members()])
def test_docstrings_describe_every_parameter(name, thing):
    text = inspect.getdoc(thing)
    summary = text.split("\n")[0]
    assert summary.endswith(".") and len(summary) <= 100
    assert max(map(len, text.split("\n"))) <= 100
    if not inspect.isfunction(thing):
        return
    wanted = [one for one in inspect.signature(thing).parameters if one != "self"]
    section = re.search(r"^Parameters\n-+\n(.*?)(?=^\w+\n-+\n|\Z)", text, re.S | re.M)
    lines = re.findall(r"^(\*{0,2}\w.*)$", section[1] if section else "", re.M)
    described = [one.strip(" *") for line in lines for one in line.split(" : ")[0].split(",")]
    assert [one for one in wanted if one not in described] == []
    if "comm" in wanted:
        assert "ollective" in text


# As in tests/package/prose.rs.
OPENINGS = ("What ", "Those ", "That ", "Of ", "None ", "Who ", "Where ", "How ", "As ", "The same", "Says ", "Tells ", "Whether ")
PHRASES = r"\b(so many|none where|where there is none|for who|whoever|lest|anew|nobody|without a word|in the place of|is told|all ranks call it|not ours to)\b"


def prose(path):
    """Docstrings and comments of a file, with their lines."""
    text = path.read_text()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node):
            yield node.body[0].lineno, ast.get_docstring(node, clean=False), node
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], " " * token.start[1] + token.string, None


@pytest.mark.parametrize("path", sorted(pathlib.Path(meshloom.__file__).parent.glob("*.py")), ids=lambda path: path.name)
def test_docstrings_and_comments_are_in_plain_english(path):
    faults = []
    for line, text, node in prose(path):
        words = re.sub(r"`+[^`]*`+", "x", text)
        if node is not None and words.startswith(OPENINGS):
            faults.append((line, "opening"))
        faults += [(line, found[0]) for found in re.finditer(PHRASES, words, re.I)]
        faults += [(line, "longer than 100 columns") for part in text.split("\n") if len(part) > 100]
    assert not faults
