#!/usr/bin/env bash
# The Python package.
#
#   scripts/python.sh wheel       builds the optimized wheel without MPI in target/wheels
#   scripts/python.sh wheel-mpi   builds it with MPI, for this machine's library, in
#                                 target/wheels-mpi
#   scripts/python.sh test        builds the extension over the library that `make test` builds, with
#                                 MPI and HDF5 if there is an mpirun, installs the package in an
#                                 environment under target/ and runs its tests (Linux)
#   scripts/python.sh docs        builds the API reference with Sphinx in target/python-docs; a warning
#                                 is an error
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

home=$PWD/target/python
say() { echo "python: $*"; }

# Creates an environment of pinned packages, again if its list changes.
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

# Builds the wheel of a profile with some features, alone in a directory.
build() {
    local to=$1
    shift
    rm -rf "$to"
    (cd python && "$home/build/bin/maturin" build --quiet --out "$to" "$@")
}

# Installs the package in the environment `test`, over an extension that shares the library with the
# test programs in Rust: a wheel would compile it once more.
install_for_tests() {
    local features=reference extension packages
    if command -v mpirun >/dev/null; then features=reference,mpi,hdf5,gpu-direct; fi
    extension=$(RUSTC_WORKSPACE_WRAPPER=$PWD/scripts/rustc.sh "${CARGO:-cargo}" build --workspace --features "$features" --lib --tests \
        --message-format json-render-diagnostics | sed -n 's/.*"filenames":\["\([^"]*libmeshloom_python\.so\)".*/\1/p')
    packages=$("$home/test/bin/python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
    rm -rf "${packages:?}"/meshloom "$packages"/meshloom-*.dist-info
    cp -r python/meshloom "$packages/meshloom"
    cp "$extension" "$packages/meshloom/_native.abi3.so"
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
        if ! environment test numpy==2.4.6 scipy==1.17.1 pytest==9.2.0 pytest-xdist==3.8.0 hypothesis mpi4py==4.1.2 nbclient ipykernel matplotlib mypy==2.4.1 jax==0.10.2 numpyro==0.22.0; then
            say "the packages that the tests need cannot be installed: the tests are skipped"
            exit 0
        fi
        install_for_tests
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
    docs)
        if ! environment build "maturin==1.16.0" || ! environment docs numpy==2.4.6 sphinx==9.0.4 furo==2025.12.19; then
            say "the packages that build the API reference cannot be installed: it is skipped"
            exit 0
        fi
        # Nothing is computed: without optimization of the package itself.
        build "$home/wheel" --profile dev --config profile.dev.package.meshloom.opt-level=0 --compatibility linux
        "$home/docs/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check --no-deps --force-reinstall "$home/wheel"/*.whl
        rm -rf target/python-docs
        "$home/docs/bin/python" -m sphinx --quiet --fail-on-warning --keep-going -d "$home/doctrees" python/docs target/python-docs
        say "the API reference is in target/python-docs/index.html"
        ;;
    *) echo "usage: scripts/python.sh [wheel|wheel-mpi|test|docs]" >&2; exit 2 ;;
esac
