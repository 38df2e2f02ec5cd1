"""Checks that all versions agree and that no metadata of a release is missing.

    cargo metadata --no-deps --format-version 1 | python3 scripts/release.py PACKAGES
"""

import json, re, sys
from pathlib import Path

published = sys.argv[1:]
packages = {package["name"]: package for package in json.load(sys.stdin)["packages"]}
version = packages["meshloom"]["version"]
wrong = []

def check(what, is_right):
    if not is_right:
        wrong.append(what)

for name, package in packages.items():
    check(f"{name} has version {package['version']}, not {version}", package["version"] == version)
    check(f"{name} asks for Rust {package['rust_version']}", package["rust_version"] == packages["meshloom"]["rust_version"])
    for needed in package["dependencies"]:
        # A development dependency without a version is left out of the published package.
        if needed.get("path") and (needed["kind"] != "dev" or needed["req"] != "*") and name in published:
            check(f"{name} asks for {needed['name']} {needed['req']}, not ^{version}", needed["req"] == f"^{version}")
for name in published:
    package = packages[name]
    for key in ["description", "license", "readme", "keywords", "categories", "documentation"]:
        check(f"{name} has no {key}", package[key])
    check(f"{name} has more than five keywords or categories", max(len(package["keywords"]), len(package["categories"])) <= 5)
    check(f"{name} may not be published", package["publish"] is None)
for path, pattern in [
    ("CHANGELOG.md", r"^## (\S+)"),
    ("CITATION.cff", r"^version: (\S+)"),
    ("recipe/recipe.yaml", r"^  version: \"?([^\s\"]+)"),
]:
    found = re.search(pattern, Path(path).read_text(), re.MULTILINE)
    check(f"{path} has version {found and found[1]}, not {version}", found and found[1] == version)
if wrong:
    sys.exit("release: " + "\nrelease: ".join(wrong))
print(f"release: all versions are {version}, and no metadata is missing")
