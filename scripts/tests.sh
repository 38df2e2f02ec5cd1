#!/usr/bin/env bash
# Tests as `cargo test` runs them, but several programs at once: a software renderer compiles the kernels of a device on one thread, so that one
# program leaves other cores idle. Documentation tests are run where cargo would run them. Each program's output is printed when it ends.
#
#   scripts/tests.sh [ARGUMENTS OF cargo test] [-- ARGUMENTS OF THE TESTS]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo=${CARGO:-cargo}

export RUSTC_WORKSPACE_WRAPPER=$PWD/scripts/rustc.sh

build=() tests=() all=yes
while [ $# -gt 0 ]; do
    case $1 in
        --) shift; tests=("$@"); break ;;
        --test | --lib | --bins | --no-run) all=''; build+=("$1"); shift ;;
        *) build+=("$1"); shift ;;
    esac
done

# Examples are not built: lints look at them.
programs=("${build[@]}")
[ -z "$all" ] || programs+=(--tests)

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
# Cargo says in JSON what it has built.
"$cargo" test "${programs[@]}" --no-run --message-format json-render-diagnostics |
    sed -n 's/.*"test":true},"features".*"executable":"\([^"]*\)".*/\1/p' >"$logs/programs"
[ -s "$logs/programs" ] || { echo "tests: cargo has built none of ${build[*]}" >&2; exit 1; }

# More at a time would need memory that few machines have.
jobs=$(nproc)
[ "$jobs" -le 4 ] || jobs=4

run() {
    local logs=$1 program=$2 name status=0 start=$SECONDS
    shift 2
    name=$(basename "$program")
    "$program" "$@" >"$logs/$name.log" 2>&1 || status=$?
    {
        flock 9
        printf '\n     Running %s\n' "$program"
        cat "$logs/$name.log"
        printf '%s took %d s\n' "$name" $((SECONDS - start))
        [ "$status" = 0 ] || printf '%s ended with %d\n' "$name" "$status" | tee -a "$logs/failed"
    } 9>"$logs/lock"
}
export -f run

documentation() { "$cargo" test "${build[@]}" --doc -- "${tests[@]}"; }

xargs -a "$logs/programs" -d '\n' -P "$jobs" -I '{}' bash -c 'run "$@"' run "$logs" '{}' "${tests[@]}"
if [ -n "$all" ]; then documentation || echo "documentation tests ended with $?" | tee -a "$logs/failed"; fi
if [ -e "$logs/failed" ]; then
    echo 'tests: these failed:' >&2
    cat "$logs/failed" >&2
    exit 1
fi
