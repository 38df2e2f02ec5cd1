#!/usr/bin/env bash
# Checks that a release can be made. Publishes nothing.
#
#   scripts/release.sh check           versions and metadata agree; packages build from what a registry would hold; wheels with and without MPI
#   scripts/release.sh check --quick   the same without building
#   scripts/release.sh conda           builds the conda packages (needs rattler-build, patchelf and the channel conda-forge)
#
# The order of publication is that of `packages`: each depends on the ones before it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

packages=(meshloom meshloom-sanitizer meshloom-program)
say() { echo "release: $*"; }

# Versions, and the metadata that a registry asks for.
metadata() {
    cargo metadata --no-deps --offline --format-version 1 | python3 scripts/release.py "${packages[@]}"
}

check() {
    local quick=()
    [ "${1:-}" = --quick ] && quick=(--no-verify)
    metadata
    say "packages, in the order of publication: ${packages[*]}"
    # Cargo resolves packages that are not on the registry among those of the same call (Rust 1.90 and later), and builds dependencies once in
    # a common directory (Rust 1.91 and later).
    CARGO_BUILD_BUILD_DIR=$PWD/target/release-check CARGO_PROFILE_DEV_DEBUG=0 cargo publish --dry-run --allow-dirty "${quick[@]}" "${packages[@]/#/--package=}"
    if [ "${#quick[@]}" = 0 ]; then
        bash scripts/python.sh wheel
        if command -v mpicc >/dev/null; then bash scripts/python.sh wheel-mpi; else say "there is no mpicc here: the wheel with MPI is not built"; fi
        wheels
    fi
    say "everything is ready; nothing was published"
}

# What is in the wheels: the license, the types, and an import in an empty environment.
wheels() {
    local wheel home=$PWD/target/release-check/python
    for wheel in target/wheels/*.whl target/wheels-mpi/*.whl; do
        [ -e "$wheel" ] || continue
        for file in LICENSE-MIT LICENSE-APACHE py.typed; do
            python3 -m zipfile -l "$wheel" | grep -q "$file" || { say "$wheel lacks $file"; exit 1; }
        done
        rm -rf "$home"
        python3 -m venv "$home"
        "$home/bin/python" -m pip install --quiet --disable-pip-version-check "$wheel"
        (cd / && "$home/bin/python" -c 'import meshloom; print("release: imported", meshloom.__version__)')
        rm -rf "$home"
    done
}

conda() {
    command -v rattler-build >/dev/null || { say "rattler-build is not installed"; exit 1; }
    rattler-build build --recipe recipe/recipe.yaml --channel conda-forge --output-dir target/conda
}

case ${1:-} in
    check) check "${2:-}" ;;
    conda) conda ;;
    *) echo "usage: scripts/release.sh check [--quick] | conda" >&2; exit 2 ;;
esac
