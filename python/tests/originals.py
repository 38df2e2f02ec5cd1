"""Test suites of NumPy and SciPy, taken from the installed packages, with the functions of this package in the place of theirs."""

import collections
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree

Result = collections.namedtuple("Result", ["passed", "skipped", "failed"])


def source(module):
    """The text of an installed module of tests."""
    spec = importlib.util.find_spec(module)
    return pathlib.Path(spec.origin).read_text()


def changed(text, changes):
    """A text with parts replaced, each of which must be there."""
    for pattern, new in changes:
        text, times = re.subn(pattern, new, text)
        assert times > 0, f"{pattern} is not in the original any more"
    return text


def run(directory, name, text, deselected=()):
    """Runs a text as a module of tests; names of tests and how they ended."""
    path = directory / f"test_{name}.py"
    path.write_text(text)
    report = directory / f"{name}.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", "--tb=short", "-c", os.devnull]
    for pattern in deselected:
        command += ["--deselect", f"{path}::{pattern}"]
    said = subprocess.run(command + [str(path)], cwd=directory, capture_output=True, text=True)
    assert report.exists(), said.stdout + said.stderr
    result = Result([], [], [])
    for case in xml.etree.ElementTree.parse(report).getroot().iter("testcase"):
        name = "::".join([*case.get("classname", "").split(".")[1:], case.get("name")])
        kinds = {child.tag for child in case}
        ended = result.failed if kinds & {"failure", "error"} else result.skipped if "skipped" in kinds else result.passed
        ended.append(name)
    return result, said.stdout


def compare(what, result, said, exceptions, least):
    """Every test passes, but for those that do not apply, each for a reason; at least so many pass."""
    unexplained = [name for name in result.failed if not any(re.search(pattern, name) for pattern in exceptions)]
    assert not unexplained, f"{unexplained}\n{said[-8000:]}"
    for pattern in exceptions:
        assert any(re.search(pattern, name) for name in result.failed), f"{pattern} passes; it needs no exception any more"
    print(f"{what}: {len(result.passed)} pass, {len(result.failed)} do not apply, {len(result.skipped)} are skipped by the original")
    for pattern, reason in exceptions.items():
        count = sum(bool(re.search(pattern, name)) for name in result.failed)
        print(f"  {count} {pattern}: {reason}")
    assert len(result.passed) >= least, f"{len(result.passed)} tests of {what} pass"
