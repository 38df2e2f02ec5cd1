"""Runs all scripts of the gallery and writes their pictures to docs/gallery.

Usage: python python/gallery [SCRIPT..]
"""

import pathlib
import subprocess
import sys
import tempfile

from PIL import Image

HERE = pathlib.Path(__file__).parent
TARGET = HERE.parent.parent / "docs" / "gallery"


LIMIT_BYTES = 60_000


def reduce(source, target):
    """Store a picture with the largest palette that keeps the file below the limit."""
    picture = Image.open(source).convert("RGB")
    for colors in (256, 128, 64, 32):
        picture.quantize(colors, dither=Image.Dither.NONE).save(target, optimize=True)
        if target.stat().st_size <= LIMIT_BYTES:
            break


names = sys.argv[1:] or sorted(path.stem for path in HERE.glob("[a-z]*.py"))
for name in names:
    with tempfile.TemporaryDirectory() as folder:
        print(name, flush=True)
        subprocess.run([sys.executable, HERE / f"{name}.py"], check=True, cwd=folder)
        reduce(pathlib.Path(folder) / f"{name}.png", TARGET / f"{name}.png")
