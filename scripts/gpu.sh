#!/usr/bin/env bash
# Checks meshloom on this machine's GPU and measures it beside the libraries that are installed: `make gpu`.
#
#   scripts/gpu.sh [OPTIONS]                builds in release mode, then tests and measures
#   scripts/gpu.sh [OPTIONS] PREBUILT_DIR   tests and measures with the programs in that directory, and builds nothing
#   scripts/gpu.sh --pack DIR               builds the programs for the line above (without MPI and HDF5) and puts them there, with the wheel of `make wheel` if there is one
#
#   --out DIR       where the results go [gpu-report]
#   --seconds N     most seconds of all together, 60 at least, building aside [520]
#   --runs N        runs of which benchmarks report the median [7]
#   --small         small sizes on any device, to try the script; compares with NumPy and SciPy
#
# Results: devices.txt, tests.txt (and, where one failed, compare.txt: which kernel does what its text does not say), bench.json and table.txt (all that meshloom measured), comparison.txt (beside cuFFT and CUB as
# PyTorch calls them, jz-tree, JaxPM and NIFTy.re, as far as Python finds them; NIFTy.re only with meshloom's wheel), report.json (all of it, with the date and the driver). Files grow as things are measured, so that one who ends this has what there is.
# Exit code 1 where a test or a benchmark failed or there is no GPU; what can be measured is measured all the same.
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
    cargo build --release -p meshloom-program --features gpu-direct >&2
    # Cargo says in JSON where it put the program.
    cargo test --release -p meshloom --test gpu --no-run --message-format json |
        sed -n 's/.*"name":"gpu".*"executable":"\([^"]*\)".*/\1/p' | tail -1
}

# The newest wheel of a directory, which `compare_gpu.py infer` needs; nothing if there is none.
wheel_of() { find "$1" -maxdepth 1 -name 'meshloom-*.whl' -printf '%T@ %p\n' 2>/dev/null | sort -n | tail -1 | cut -d' ' -f2- || true; }

# With the tracked files of the tree, which travel along, less than 64 MiB.
most_bytes=$((50 * 1000 * 1000))
if [ -n "$pack" ]; then
    tests=$(build)
    [ -x "$tests" ] || fail 'cargo did not say where the tests are'
    mkdir -p "$pack"
    cp target/release/meshloom "$pack/meshloom"
    cp "$tests" "$pack/gpu_tests"
    strip "$pack/meshloom" "$pack/gpu_tests"
    rm -f "$pack"/meshloom-*.whl
    wheel=$(wheel_of target/wheels)
    [ -z "$wheel" ] || cp "$wheel" "$pack"
    size=$(cat "$pack"/* | wc -c)
    [ "$size" -le "$most_bytes" ] || fail "the programs have $size bytes, more than $most_bytes"
    say "$pack/meshloom, $pack/gpu_tests${wheel:+ and a wheel}: $size bytes"
    exit 0
fi
if [ -n "$prebuilt" ]; then
    program=$prebuilt/meshloom tests=$prebuilt/gpu_tests wheel=$(wheel_of "$prebuilt")
else
    tests=$(build) program=target/release/meshloom wheel=$(wheel_of target/wheels)
fi
for file in "$program" "$tests"; do
    [ -x "$file" ] || fail "$file is no program; make it with: scripts/gpu.sh --pack DIR"
done

mkdir -p "$out"
begun=$SECONDS
# So many parts of the seconds that are left: part 2 3
part() { local part=$(((seconds - SECONDS + begun) * $1 / $2)); echo $((part > 1 ? part : 1)); }
rm -f "$out/bench.json" "$out/report.json"
failures=()

say 'adapters'
adapters() { "$program" devices >"$out/devices.txt" 2>&1; }
has_nvidia() { adapters && grep -qi nvidia "$out/devices.txt"; }
cards=''
if command -v nvidia-smi >/dev/null; then
    cards=$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader) || { say 'nvidia-smi fails'; cards=''; }
fi
# Containers often have the driver at a place where no loader looks.
if [ -n "$cards" ] && [ -z "${VK_DRIVER_FILES:-}" ] && ! has_nvidia; then
    for icd in /usr/local/nvidia/share/vulkan/icd.d/nvidia_icd.json /usr/local/share/vulkan/icd.d/nvidia_icd.json /etc/vulkan/icd.d/nvidia_icd.json \
        /usr/share/vulkan/icd.d/nvidia_icd.json; do
        [ -e "$icd" ] || continue
        export VK_DRIVER_FILES=$icd
        if has_nvidia; then say "the driver is $icd"; break; fi
        unset VK_DRIVER_FILES
    done
fi
adapters || failures+=('meshloom devices fails: is there a Vulkan loader (libvulkan.so.1) and a driver (VK_DRIVER_FILES names one)?')
[ -z "$cards" ] || echo "$cards" >>"$out/devices.txt"
cat "$out/devices.txt"
if [ -z "$small" ] && ! grep -qE '\((Discrete|Integrated|Virtual)Gpu, ' "$out/devices.txt"; then
    failures+=('there is no GPU here; --small tries the script on any device, and VK_DRIVER_FILES names a driver that the loader does not find')
fi

# Half of the time at most is for the tests; with small sizes three quarters, since a software renderer compiles for longer than it works.
for_tests=$((small ? seconds * 3 / 4 : seconds / 2))
say "tests (all output in $out/tests.txt)"
# Kernels of tests, most of which open a device of their own.
kernels=$(mktemp -d)
trap 'rm -rf "$kernels"' EXIT
testing() { MESHLOOM_CACHE=${MESHLOOM_CACHE:-$kernels} timeout -k 5 "$@"; }
# They need no device.
host_only=(--skip inference::host:: --skip inference::convergence:: --skip inference::evaluations:: --skip pm::cosmology:: --skip pm::mass_function::)
code=0
testing "$for_tests" "$tests" "${host_only[@]}" >"$out/tests.txt" 2>&1 || code=$?
grep -E '^test result|^test .* FAILED$' "$out/tests.txt" || tail -5 "$out/tests.txt"
case $code in
    0) ;;
    124 | 137) failures+=("tests: not done after $for_tests s") ;;
    *) failures+=("tests: exit code $code") ;;
esac
mapfile -t failed < <(sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p' "$out/tests.txt")
if [ "$code" != 0 ] && [ ${#failed[@]} -gt 0 ]; then
    # Where time ran out nothing was said of why.
    [ "$code" != 124 ] || testing $((seconds / 25)) "$tests" --exact "${failed[@]}" >>"$out/tests.txt" 2>&1 || true
    say "failed tests once more, each dispatch beside what its text says ($out/compare.txt)"
    MESHLOOM_SANITIZE=compare testing $((seconds / 10)) "$tests" --exact "${failed[@]}" >"$out/compare.txt" 2>&1 || true
    grep -o 'kernel .*: the sanitizer stopped.*' "$out/compare.txt" | sort -u | head -20 || true
fi

# Three quarters of what is left are for meshloom, whose last subject begins in the first two of them, the rest for the others.
say "benchmarks"
sizes=()
[ -z "$small" ] || sizes=(--sizes small)
code=0
timeout -k 5 "$(part 3 4)" "$program" bench --all --kernels "${sizes[@]}" --runs "$runs" --quiet --within "$(part 1 2)" \
    --save "$out/bench.json" | tee "$out/table.txt" || code=$?
[ "$code" = 0 ] || failures+=("bench: exit code $code")

if [ -e "$out/bench.json" ] && command -v python3 >/dev/null; then
    say 'beside other libraries'
    if [ -n "$wheel" ] && python3 -m pip install --quiet --no-deps --no-index --target "$kernels/python" "$wheel"; then
        export PYTHONPATH=$kernels/python${PYTHONPATH:+:$PYTHONPATH}
    fi
    where=()
    [ -z "$small" ] || where=(--cpu)
    code=0
    timeout -k 5 "$(part 1 1)" python3 benches/compare_gpu.py all --report "$out/bench.json" --save "$out/report.json" \
        --runs "$runs" --within "$(part 3 4)" "${where[@]}" | tee "$out/comparison.txt" || code=$?
    [ "$code" = 0 ] || failures+=("comparison: exit code $code")
else
    say 'without Python and what was measured there is no comparison'
fi
# What there is, where the comparison did not come to write it.
if [ ! -e "$out/report.json" ]; then
    { printf '{"date": "%s", "meshloom": ' "$(date -u +%Y-%m-%dT%H:%M:%SZ)"; cat "$out/bench.json" 2>/dev/null || echo null; echo '}'; } >"$out/report.json"
fi

say "$((SECONDS - begun)) s; results are in $out"
if [ ${#failures[@]} -gt 0 ]; then
    printf 'gpu: FAILED: %s\n' "${failures[@]}" >&2
    exit 1
fi
