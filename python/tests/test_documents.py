"""Blocks of Python in the documents run as they stand, page by page, and print what the documents say."""

import contextlib
import io
import pathlib
import re

import pytest

pytest.importorskip("scipy")

ROOT = pathlib.Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\S*)\n(.*?)^```\n(?=(\s*^```text\n(.*?)^```$)?)", re.DOTALL | re.MULTILINE)


def words(text):
    """The words of each line that is not blank."""
    return [re.split(r"[\s,;=()\[\]]+", line.strip()) for line in text.splitlines() if line.strip()]


def is_same(printed, expected):
    """Whether words are equal; numbers except whole ones below 100 may differ by 2 %, as drivers round differently."""
    if printed == expected:
        return True
    try:
        numbers = float(printed), float(expected)
    except ValueError:
        return False
    is_exact = re.fullmatch(r"-?\d{1,2}", expected) is not None
    return not is_exact and abs(numbers[0] - numbers[1]) <= 0.02 * max(abs(numbers[1]), 1e-6)


def blocks(page):
    """Blocks of Python with the line where they begin and the output that follows them."""
    text = page.read_text(encoding="utf-8")
    for match in BLOCK.finditer(text):
        if match[1] == "python":
            yield text.count("\n", 0, match.start()) + 1, match[2], match[4]


@pytest.mark.parametrize("page", [page for page in PAGES if any(blocks(page))], ids=lambda page: page.stem)
def test_blocks_run_and_print_what_follows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": page.stem}
    for line, code, shown in blocks(page):
        if "import jax" in code:
            pytest.importorskip("jax")
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(compile("\n" * line + code, str(page), "exec"), names)
        printed, expected = words(output.getvalue()), words(shown or "")
        same = len(printed) == len(expected) and all(
            len(a) == len(b) and all(map(is_same, a, b)) for a, b in zip(printed, expected)
        )
        assert same or shown is None, f"{page.name}:{line} prints\n{output.getvalue()}"
