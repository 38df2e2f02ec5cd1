#!/usr/bin/env bash
# Checks meshloom on this machine's GPU and measures it beside the libraries that are installed: `make gpu`.
#
#   scripts/gpu.sh [OPTIONS]                builds in release mode, then tests and measures
#   scripts/gpu.sh [OPTIONS] PREBUILT_DIR   tests and measures with the programs in that directory, and builds nothing
#   scripts/gpu.sh --pack DIR               builds the programs for the line above (without MPI and HDF5) and puts them there
#
#   --out DIR       where the results go [gpu-report]
#   --seconds N     most seconds of all together, 60 at least, building aside [520]
#   --runs N        runs of which benchmarks report the median [7]
#   --small         small sizes on any device, to try the script; compares with NumPy and SciPy
#
# Results: tests.txt (and, where one failed, compare.txt: which kernel does what its text does not say), bench.json and table.txt (all that meshloom measured), comparison.txt (beside cuFFT, CUB and jz-tree, as far
# as Python finds them), report.json (all of it, with the date and the driver). Exit code 1 where a test or a benchmark failed; what
# can be measured is measured all the same.
set -euo pipefail
from=$PWD
cd "$(dirname "$0")/.."

say() { printf 'gpu: %s\n' "$*"; }
fail() { printf 'gpu: %s\n' "$*" >&2; exit 1; }

out=gpu-report seconds=520 runs=7 small='' pack='' prebuilt=''
value() { [ $# -ge 2 ] || fail "$1 needs a value"; printf '%s' "$2"; }
# Paths are given from where this was started.
path() { case $1 in /*) printf '%s' "$1" ;; *) printf '%s' "$from/$1" ;; esac; }
while [ $# -gt 0 ]; do
    case $1 in
        --out) out=$(path "$(value "$@")"); shift 2 ;;
        --seconds) seconds=$(value "$@"); shift 2 ;;
        --runs) runs=$(value "$@"); shift 2 ;;
        --pack) pack=$(path "$(value "$@")"); shift 2 ;;
        --small) small=1; shift ;;
        -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
        -*) fail "there is no option $1 (see --help)" ;;
        *) [ -z "$prebuilt" ] || fail 'one directory at most'; prebuilt=$(path "$1"); shift ;;
    esac
done
for number in "$seconds" "$runs"; do
    [[ $number =~ ^[1-9][0-9]{0,5}$ ]] || fail "$number is no number of seconds or runs"
done
[ "$seconds" -ge 60 ] || fail "--seconds is $seconds, and no test is done in that; give 60 at least"

# The programs, built: prints the path of the tests.
build() {
    cargo build --release --features cli >&2
    # Cargo says in JSON where it put the program.
    cargo test --release --features cli --test gpu --no-run --message-format json |
        sed -n 's/.*"name":"gpu".*"executable":"\([^"]*\)".*/\1/p' | tail -1
}

most_bytes=$((60 * 1000 * 1000))
if [ -n "$pack" ]; then
    tests=$(build)
    [ -x "$tests" ] || fail 'cargo did not say where the tests are'
    mkdir -p "$pack"
    cp target/release/meshloom "$pack/meshloom"
    cp "$tests" "$pack/gpu_tests"
    strip "$pack/meshloom" "$pack/gpu_tests"
    size=$(cat "$pack/meshloom" "$pack/gpu_tests" | wc -c)
    [ "$size" -le "$most_bytes" ] || fail "the programs have $size bytes, more than $most_bytes"
    say "$pack/meshloom and $pack/gpu_tests: $size bytes"
    exit 0
fi
if [ -n "$prebuilt" ]; then
    program=$prebuilt/meshloom tests=$prebuilt/gpu_tests
else
    tests=$(build) program=target/release/meshloom
fi
for file in "$program" "$tests"; do
    [ -x "$file" ] || fail "$file is no program; make it with: scripts/gpu.sh --pack DIR"
done

mkdir -p "$out"
begun=$SECONDS
left() { local left=$((seconds - SECONDS + begun)); echo $((left > 1 ? left : 1)); }
# Two thirds of what is left.
most() { local most=$(($(left) * 2 / 3)); echo $((most > 1 ? most : 1)); }
failures=()

say 'adapters'
"$program" devices | tee "$out/devices.txt"
if command -v nvidia-smi >/dev/null; then
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader | tee -a "$out/devices.txt" || say 'nvidia-smi fails'
fi

# Half of the time at most is for the tests; with small sizes three quarters, since a software renderer compiles for longer than it works.
for_tests=$((small ? seconds * 3 / 4 : seconds / 2))
say "tests (all output in $out/tests.txt)"
code=0
timeout "$for_tests" "$tests" >"$out/tests.txt" 2>&1 || code=$?
grep -E '^test result|^test .* FAILED$' "$out/tests.txt" || tail -5 "$out/tests.txt"
case $code in
    0) ;;
    124) failures+=("tests: not done after $for_tests s") ;;
    *)
        failures+=("tests: exit code $code")
        say "failed tests once more, each dispatch beside what its text says ($out/compare.txt)"
        mapfile -t failed < <(sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p' "$out/tests.txt")
        MESHLOOM_SANITIZE=compare timeout $((seconds / 10)) "$tests" --exact "${failed[@]}" >"$out/compare.txt" 2>&1 || true
        grep -o 'the sanitizer stopped.*' "$out/compare.txt" | sort -u | head -20 || true
        ;;
esac

# Two thirds of what is left are for meshloom, the rest for the others.
say "benchmarks"
sizes=()
[ -z "$small" ] || sizes=(--sizes small)
code=0
timeout "$(left)" "$program" bench --all "${sizes[@]}" --runs "$runs" --quiet --within "$(most)" \
    --save "$out/bench.json" | tee "$out/table.txt" || code=$?
[ "$code" = 0 ] || failures+=("bench: exit code $code")

if [ -e "$out/bench.json" ] && command -v python3 >/dev/null; then
    say 'beside other libraries'
    where=()
    [ -z "$small" ] || where=(--cpu)
    code=0
    timeout "$(left)" python3 benches/compare_gpu.py all --report "$out/bench.json" --save "$out/report.json" \
        --runs "$runs" --within "$(most)" "${where[@]}" | tee "$out/comparison.txt" || code=$?
    [ "$code" = 0 ] || failures+=("comparison: exit code $code")
else
    say 'without Python there is no comparison, and bench.json is the report'
fi

say "$((SECONDS - begun)) s; results are in $out"
if [ ${#failures[@]} -gt 0 ]; then
    printf 'gpu: FAILED: %s\n' "${failures[@]}" >&2
    exit 1
fi
