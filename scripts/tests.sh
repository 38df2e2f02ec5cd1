#!/usr/bin/env bash
# Tests as `cargo test` runs them, but several programs at once: a software renderer compiles the kernels of a device on one thread, so that one
# program leaves other cores idle. Documentation tests are run where cargo would run them.
#
#   scripts/tests.sh [ARGUMENTS OF cargo test] [-- ARGUMENTS OF THE TESTS]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=() tests=() some=''
while [ $# -gt 0 ]; do
    case $1 in
        --) shift; tests=("$@"); break ;;
        --test | --lib | --bins) some=yes; build+=("$1"); shift ;;
        *) build+=("$1"); shift ;;
    esac
done

# Examples are not built: lints look at them.
programs=("${build[@]}")
[ -n "$some" ] || programs+=(--tests)
programs=$(bash scripts/programs.sh "${programs[@]}")

# A command in words that a shell reads back.
line() { printf '%q ' "$@"; echo; }

{
    while IFS= read -r program; do line "$program" "${tests[@]}"; done <<<"$programs"
    [ -n "$some" ] || line env "RUSTC_WORKSPACE_WRAPPER=$PWD/scripts/rustc.sh" "${CARGO:-cargo}" test "${build[@]}" --doc -- "${tests[@]}"
} | bash scripts/beside.sh
