"""What the stubs say is what there is."""

import ast
import builtins
import inspect
import os
import pathlib
import pydoc
import subprocess
import sys

import pytest

import meshloom
from meshloom import fft, inference, jax, operators, plot, torch


def named(arguments):
    rest = [arguments.kwarg] if arguments.kwarg else []
    return [one.arg for one in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *rest] if one.arg != "self"]


@pytest.mark.parametrize("module", [meshloom, fft, inference, jax, operators, plot, torch])
def test_stubs_name_what_there_is(module):
    stub = pathlib.Path(module.__file__).with_suffix(".pyi")
    tree = ast.parse(stub.read_text())
    defined = {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    imported = {alias.asname for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names if alias.asname}
    assert set(module.__all__) <= defined | imported
    # The longest overload has every argument.
    functions = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            functions.setdefault(node.name, []).append(named(node.args))
        if isinstance(node, ast.ClassDef) and inspect.isclass(getattr(module, node.name, None)):
            own = getattr(module, node.name)
            for method in (one for one in node.body if isinstance(one, ast.FunctionDef)):
                assert hasattr(own, method.name), f"{node.name}.{method.name}"
    for name, overloads in functions.items():
        real = list(inspect.signature(getattr(module, name)).parameters)
        assert max(overloads, key=len) == real, name


def imports(tree):
    """Modules of the package that one imports, wherever in its text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            yield from [node.module] if node.module else [alias.name for alias in node.names]


def test_modules_import_each_other_in_no_ring():
    folder = pathlib.Path(meshloom.__file__).parent
    files = {path.stem: path for path in folder.glob("*.py") if path.stem != "__init__"}
    uses = {name: set(imports(ast.parse(path.read_text()))) & set(files) for name, path in files.items()}
    assert len(uses) > 15 and "_arguments" in uses["_comm"]
    while uses:
        free = {name for name, needed in uses.items() if not needed & set(uses)}
        assert free, f"a ring is among {sorted(uses)}"
        uses = {name: needed for name, needed in uses.items() if name not in free}


def test_help_lists_public_names_only():
    for module in (fft, jax, operators, plot, torch):
        public = [name for name in dir(module) if not name.startswith("__")]
        assert sorted(public) == sorted(module.__all__)
    # A star import takes all of them, and replaces nothing of Python's.
    listed = pydoc.plain(pydoc.render_doc(meshloom))
    assert all(f"{name}(" in listed for name in ("map_items", "map_reduce")) and not set(meshloom.__all__) & set(dir(builtins))


CHECKER = """
[mypy]
ignore_missing_imports = True
[mypy-scipy.*]
follow_imports = skip
[mypy-meshloom._device_array]
ignore_errors = True
"""
ALLOWED = r"""
meshloom\._.*
meshloom(\..*)?\.__all__
# Made by functions alone.
meshloom\.(.*\.)?(Array|Chains|Groups|Simulation|CorrelatedField|Fields|Likelihood|Samples|Leaf|Linearization|Model)\.__init__
meshloom\.Cosmology\.__(match_args|post_init)__
"""


def test_stubs_agree_with_the_modules(tmp_path):
    pytest.importorskip("mypy.stubtest", reason="mypy compares the stubs with the modules")
    config, allowed = tmp_path / "mypy.ini", tmp_path / "allowed.txt"
    config.write_text(CHECKER)
    allowed.write_text(ALLOWED)
    command = [sys.executable, "-m", "mypy.stubtest", "meshloom", "--concise", "--mypy-config-file", config, "--allowlist", allowed]
    home = pathlib.Path(meshloom.__file__).resolve().parent.parent
    # An installed package is found by itself.
    paths = {} if home.name == "site-packages" else {"PYTHONPATH": str(home), "MYPYPATH": str(home)}
    found = subprocess.run(command, env={**os.environ, **paths}, cwd=tmp_path, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr
