"""The scripts of the gallery run in a small size, and its page shows them."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("matplotlib")
stats = pytest.importorskip("scipy.stats")

HOME = pathlib.Path(__file__).resolve().parent.parent
SIZES = {
    "correlation_function": 16,
    "cosmology": 8,
    "dust": 12,
    "halo_catalog": 16,
    "initial_conditions": 8,
    "interferometer": 16,
    "lensing": 8,
    "light_cone": 16,
    "many_ranks": 16,
    "molecular_dynamics": 6,
    "multi_frequency": 10,
    "photon_sources": 16,
    "posterior": 16,
    "radial_velocity": 100,
    "shallow_water": 32,
    "spectrograph": 64,
}


# Numbers that the data of a posterior determine, in the root of a mean square that has the
# distribution of chi-squared: of fields at least the 20 largest modes.
NUMBERS = {"cosmology": 2, "radial_velocity": 4}


def program():
    """The program: that of the environment, an installed one, or one that is built beside the package."""
    built = [HOME.parent / "target" / profile / "meshloom" for profile in ("release", "debug")]
    places = [os.environ.get("MESHLOOM_PROGRAM"), shutil.which("meshloom"), *built]
    return next((str(place) for place in places if place and pathlib.Path(place).exists()), None)


@pytest.mark.parametrize("name", SIZES)
def test_scripts_of_the_gallery_draw_their_picture(name, tmp_path):
    if name == "shallow_water" and program() is None:
        pytest.skip("the program is not built")
    script, picture = HOME / "gallery" / f"{name}.py", tmp_path / "picture.png"
    environment = {**os.environ, "MPLBACKEND": "agg", "MESHLOOM_PROGRAM": program() or ""}
    command = [sys.executable, script, str(SIZES[name]), picture]
    found = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=500)
    assert found.returncode == 0, found.stdout + found.stderr
    assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size > 5000
    for error in re.findall(r"error over standard deviation (\S+)", found.stdout):
        numbers = NUMBERS.get(name, 20)
        low, high = np.sqrt(stats.chi2.ppf([0.0005, 0.9995], numbers) / numbers)
        assert low < float(error) < high, found.stdout


def test_scripts_print_their_usage():
    script = HOME / "gallery" / "posterior.py"
    found = subprocess.run([sys.executable, script, "--help"], capture_output=True, text=True, timeout=100)
    assert found.returncode == 0 and "Usage: python posterior.py [CELLS] [PICTURE]" in found.stdout, found.stderr
    for name in SIZES:
        text = (HOME / "gallery" / f"{name}.py").read_text()
        assert f"\nUsage: python {name}.py [" in text and 'if "--help" in sys.argv:\n    print(__doc__)\n' in text


def test_the_page_shows_every_script():
    scripts = {path.stem for path in (HOME / "gallery").glob("[a-z]*.py")}
    assert scripts == set(SIZES)
    docs = HOME.parent / "docs"
    page = (docs / "gallery.md").read_text()
    for name in scripts:
        assert f"gallery/{name}.py" in page and f"(gallery/{name}.png)" in page
        assert len((HOME / "gallery" / f"{name}.py").read_text().splitlines()) <= 80
        assert (docs / "gallery" / f"{name}.png").stat().st_size <= 64 * 1024
    assert len(re.findall(r"\.png\)", page)) == len(scripts)
