#!/usr/bin/env bash
# Tests of ranks as processes of MPICH, whose kin are the MPI libraries of many clusters, in target/mpich.
#
#   scripts/mpich.sh [ARGUMENTS OF cargo test]
#
# MPI's bindings do not notice that the library is another, so the build is one of its own. What it depends on, and knows no MPI, is copied
# from the build that there is: `make test` comes here when that is done.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo=${CARGO:-cargo}
target=target/mpich

if [ ! -d "$target/debug" ]; then
    mkdir -p "$target/debug"
    if [ -d target/debug/deps ]; then
        # Libraries have a dot in their names, programs, which are large, have none. Cargo's lock keeps other builds from writing meanwhile.
        (cd target/debug && flock .cargo-lock sh -c "find .fingerprint build deps -type f \( -not -path 'deps/*' -o -name '*.*' \) -print0 |
            tar --null -T - -cf -") | tar -C "$target/debug" -xf -
        "$cargo" clean --quiet --target-dir "$target" -p mpi-sys -p mpi
    fi
fi
MPICC=mpicc.mpich MPIRUN=mpirun.mpich exec bash scripts/tests.sh --target-dir "$target" "$@"
