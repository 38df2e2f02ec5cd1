#!/usr/bin/env bash
# The Python package.
#
#   scripts/python.sh wheel       the wheel, optimized and without symbols, in target/wheels: no MPI
#   scripts/python.sh wheel-mpi   the same with MPI, for this machine's MPI library, in target/wheels-mpi
#   scripts/python.sh test    a wheel of the tests' profile, installed in an environment under target/, and its tests; where MPI is, it is
#                             built with it, and those of ranks as MPI processes follow
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

home=$PWD/target/python
say() { echo "python: $*"; }

# An environment with what builds and tests; made once, and again when its list changes.
environment() {
    local name=$1
    shift
    if [ "$(cat "$home/$name/installed.txt" 2>/dev/null)" != "$*" ]; then
        rm -rf "${home:?}/$name"
        python3 -m venv "$home/$name" || return 1
        "$home/$name/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check --only-binary :all: "$@" || return 1
        echo "$*" >"$home/$name/installed.txt"
    fi
}

# The wheel of a profile with some features, alone in a directory.
build() {
    local to=$1
    shift
    rm -rf "$to"
    (cd python && "$home/build/bin/maturin" build --quiet --out "$to" "$@")
}

install() {
    "$home/test/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check --no-deps --force-reinstall "$1"/*.whl
}

case ${1:-test} in
    wheel)
        environment build "maturin==1.16.0"
        build "$PWD/target/wheels" --release
        ls -l target/wheels/*.whl
        ;;
    wheel-mpi)
        environment build "maturin==1.16.0"
        # No portable wheel can hold the MPI library of a site, so the wheel names the platform only.
        build "$PWD/target/wheels-mpi" --release --compatibility linux --features mpi
        ls -l target/wheels-mpi/*.whl
        ;;
    test)
        if ! environment build "maturin==1.16.0" ||
            ! environment test numpy==2.4.6 scipy==1.17.1 pytest==9.2.0 pytest-xdist==3.8.0 hypothesis mpi4py==4.1.2 nbclient ipykernel matplotlib mypy==2.4.1; then
            say "what builds and tests the package cannot be installed: its tests are skipped"
            exit 0
        fi
        features=()
        if command -v mpirun >/dev/null; then features=(--features mpi); fi
        # A quick build: the tests wait for kernels and not for the host.
        build "$home/wheel" --profile dev --config profile.dev.package.meshloom.opt-level=0 --compatibility linux "${features[@]}"
        install "$home/wheel"
        # A test that hangs says where.
        (cd python/tests && "$home/test/bin/python" -m pytest -p no:cacheprovider -o faulthandler_timeout=600 -n 2 --ignore=test_mpi.py .)
        "$home/test/bin/python" -m pytest -q -p no:cacheprovider --doctest-modules --pyargs meshloom
        if command -v mpirun >/dev/null; then
            say "ranks as MPI processes"
            (cd python/tests && mpirun -n 3 --oversubscribe "$home/test/bin/python" -m pytest -q -p no:cacheprovider -o faulthandler_timeout=600 test_mpi.py)
        else
            say "there is no mpirun here: tests of MPI are skipped"
        fi
        ;;
    *) echo "usage: scripts/python.sh [wheel|wheel-mpi|test]" >&2; exit 2 ;;
esac
