#!/usr/bin/env bash
# Builds programs of tests and prints their paths, a line each, from what cargo says of them in JSON.
#
#   scripts/programs.sh [ARGUMENTS OF cargo test]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export RUSTC_WORKSPACE_WRAPPER=$PWD/scripts/rustc.sh
"${CARGO:-cargo}" test "$@" --no-run --message-format json-render-diagnostics |
    sed -n 's/.*"test":true},"features".*"executable":"\([^"]*\)".*/\1/p' |
    grep . || { echo "programs: cargo has built none of $*" >&2; exit 1; }
