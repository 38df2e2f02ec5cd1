"""Blocks of Python in the documents run as they stand, page by page, and print what the documents say."""

import contextlib
import decimal
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
    """Whether words are equal, or numbers as different drivers may round them.

    Counts from 100 on, such as of halos, may differ by 2 %, numbers with a point by 0.1 % or by a
    unit of the last digit.
    """
    if printed == expected:
        return True
    try:
        difference, number = float(printed) - float(expected), abs(float(expected))
    except ValueError:
        return False
    if re.fullmatch(r"-?\d+", expected):
        return number >= 100 and abs(difference) <= 0.02 * number
    unit = 10.0 ** decimal.Decimal(expected).as_tuple().exponent
    return abs(difference) <= max(1e-3 * number, 1.001 * unit)


@pytest.mark.parametrize(
    "printed, expected, same",
    [
        ("-148.41761197", "-148.7", False),
        ("-148.41761197", "-148.4", True),
        ("7952.9", "7952.3283", True),
        ("2.2e-04", "2.1e-04", True),
        ("2.3e-04", "2.1e-04", False),
        ("680", "670", True),
        ("700", "670", False),
        ("9", "8", False),
        ("True", "False", False),
        ("nan", "1.0", False),
    ],
)
def test_numbers_may_differ_by_rounding(printed, expected, same):
    assert is_same(printed, expected) == same


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
