#!/usr/bin/env bash
# Measures what decides the design of kernels and exchanges on a GPU: commands, memory, staging, shapes of transforms, and the steps that were changed last.
#
#   scripts/gpu_lab.sh [OPTIONS]                builds in release mode, then measures
#   scripts/gpu_lab.sh [OPTIONS] PREBUILT_DIR   measures with the program in that directory, and builds nothing (scripts/gpu.sh --pack DIR makes it)
#
#   --out DIR         where the results go [gpu-lab]
#   --seconds N       most seconds of all together, building aside [480]
#   --runs N          runs of which benchmarks report the median [7]
#   --against FILE    results of an earlier run; prints the ratio of each time
#   --small           small sizes on any device, to try the script
#
# Results: a file of each step, and all of them in lab.json, with the date and the device. Steps for which no time is left are named. Exit code 1 where a step failed.
set -euo pipefail
from=$PWD
cd "$(dirname "$0")/.."

say() { printf 'gpu_lab: %s\n' "$*"; }
fail() { printf 'gpu_lab: %s\n' "$*" >&2; exit 1; }
path() { case $1 in /*) printf '%s' "$1" ;; *) printf '%s' "$from/$1" ;; esac; }
value() { [ $# -ge 2 ] || fail "$1 needs a value"; printf '%s' "$2"; }

out=gpu-lab seconds=480 runs=7 against='' small='' prebuilt=''
while [ $# -gt 0 ]; do
    case $1 in
        --out) out=$(path "$(value "$@")"); shift 2 ;;
        --seconds) seconds=$(value "$@"); shift 2 ;;
        --runs) runs=$(value "$@"); shift 2 ;;
        --against) against=$(path "$(value "$@")"); shift 2 ;;
        --small) small=1; shift ;;
        -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
        -*) fail "there is no option $1 (see --help)" ;;
        *) [ -z "$prebuilt" ] || fail 'one directory at most'; prebuilt=$(path "$1"); shift ;;
    esac
done
for number in "$seconds" "$runs"; do
    [[ $number =~ ^[1-9][0-9]{0,4}$ ]] || fail "$number is no number of seconds or runs"
done
[ -z "$against" ] || [ -e "$against" ] || fail "$against does not exist"
if [ -n "$prebuilt" ]; then
    program=$prebuilt/meshloom
    [ -x "$program" ] || fail "$program is no program; make it with: scripts/gpu.sh --pack DIR"
else
    cargo build --release -p meshloom-program --features gpu-direct >&2
    program=target/release/meshloom
fi
mkdir -p "$out"
rm -f "$out"/*.json

# Containers often have the driver at a place where no loader looks.
if command -v nvidia-smi >/dev/null && [ -z "${VK_DRIVER_FILES:-}" ] && ! "$program" devices 2>&1 | grep -qi nvidia; then
    for icd in /usr/local/nvidia/share/vulkan/icd.d/nvidia_icd.json /usr/local/share/vulkan/icd.d/nvidia_icd.json \
        /etc/vulkan/icd.d/nvidia_icd.json /usr/share/vulkan/icd.d/nvidia_icd.json; do
        if [ -e "$icd" ] && VK_DRIVER_FILES=$icd "$program" devices 2>&1 | grep -qi nvidia; then export VK_DRIVER_FILES=$icd; break; fi
    done
fi
"$program" devices | tee "$out/devices.txt"

begun=$SECONDS
failures=() left=()
# A step: its name, the most seconds it may take, and the arguments of `meshloom bench`.
step() {
    local name=$1 most=$2 code=0
    shift 2
    local rest=$((seconds - SECONDS + begun))
    if [ "$rest" -lt 5 ]; then left+=("$name"); return; fi
    timeout -k 5 "$((most < rest ? most : rest))" "$program" bench "$@" --json --quiet --runs "$runs" >"$out/$name.json" 2>"$out/$name.err" || code=$?
    [ -s "$out/$name.err" ] || rm -f "$out/$name.err"
    if [ "$code" = 0 ]; then say "$name: $((SECONDS - begun)) s"; else
        failures+=("$name: exit code $code")
        rm -f "$out/$name.json"
    fi
}

if [ -n "$small" ]; then
    step commands 60 commands --bytes 65536
    step memory 60 memory --size 65536 --stride 4096
    step staging 60 staging --bytes 65536
    step fft-default 60 fft --size 32 --complex --kernels
    step fft-8-16 60 fft --size 32 --complex --columns 8 --points 16 --kernels
    for bytes in 0 100000; do step "fft-cache-$bytes" 60 fft --size 32 --cache-bytes $bytes; done
    step pm 60 pm --size 16 --kernels
    MESHLOOM_PAINTING=tiles step pm-tiles 60 pm --size 16 --kernels
    step sort 60 sort --size 10000 --kernels
    step infer 60 infer --size 16 --samples 1 --kernels
    step exchange 60 exchange --size 16 --ranks 2
    step halo 60 halo --size 16 --ranks 2
    step fft-ranks 60 fft --size 16 --complex --ranks 2
else
    # The order is that of the decisions: the shape of passes, the cost of a dispatch, the particle-mesh step. Dispatches of 2 and of 8 chains
    # take a pass for each level; beside the same dispatches in one chain, they tell what passes by levels gain.
    step commands 40 commands --bytes 65536,1048576,67108864,1073741824,8589934592
    step memory 60 memory --size 2147483648,8589934592 --row 32,64,128,256 --stride 65536,1048576,16777216 --sectors 32,16,8
    step memory-far 30 memory --size 34359738368 --row 64,128 --stride 16777216 --sectors 32,8
    step staging 30 staging
    for columns in 8 16 32; do
        for points in 8 16 32; do
            step "fft-$columns-$points" 20 fft --size 512 --complex --columns $columns --points $points --kernels
        done
    done
    for points in 16 32; do
        step "fft-long-$points" 30 fft --size 1024 --complex --columns 16 --points $points --kernels
    done
    step fft-default 40 fft --size 256,512,1024 --kernels
    # Axes one after the other, and z and y layer by layer through the L2: 17.5 MB is the default of an H100. Kernels are not timed one by one,
    # since those of two layers overlap where they can. Decides the default, and whether ordered workgroups of one dispatch are worth their text.
    for bytes in 0 9000000 17500000 35000000; do step "fft-cache-$bytes" 30 fft --size 256,512,1024 --cache-bytes $bytes; done
    step pm 60 pm --size 512 --kernels
    # Painting by additions to memory, where the step above takes tiles; and with few particles, for which tiles may not pay.
    MESHLOOM_PAINTING=memory step pm-memory 60 pm --size 512 --kernels
    MESHLOOM_PAINTING=memory step pm-small-memory 20 pm --size 64,96,128,192 --kernels
    MESHLOOM_PAINTING=tiles step pm-small-tiles 20 pm --size 64,96,128,192 --kernels
    step sort 40 sort --size 100000,1000000,100000000 --kernels
    step knn 50 knn -k 8,16,30 --size 10000000 --kernels
    step fof 30 fof --box 1 --linking-parameter 0.2 --size 10000000 --kernels
    step gradient 40 gradient --size 128 --kernels
    # Products, steps of conjugate gradients without and with a preconditioner, whole iterations; beside NIFTy.re: benches/compare_gpu.py infer.
    step infer 40 infer --size 256,1024 --kernels
    step shallow-water 20 shallow-water --size 3600x1800 --kernels
    step map 20 map --chunk 1048576 --size 100000000 --kernels
    # Two ranks of one device: staging, messages and waits are those of two devices, the card's memory is shared.
    # `exchange` takes the first path that works: `peer`, or what devices.txt says instead. Beside it the ring.
    step exchange 40 exchange --size 512 --ranks 2
    # And with copies between kernels, to see what queues for copies gain.
    MESHLOOM_COPY_QUEUES=kernels step exchange-one-queue 40 exchange --size 512 --ranks 2
    if grep -q 'exchange *peer' "$out/devices.txt"; then MESHLOOM_EXCHANGE=ring step exchange-ring 40 exchange --size 512 --ranks 2; fi
    step halo 20 halo --size 512 --width 2 --ranks 2
    step fft-ranks 30 fft --size 512 --complex --ranks 2
    MESHLOOM_COPY_QUEUES=kernels step fft-ranks-one-queue 30 fft --size 512 --complex --ranks 2
fi

if command -v python3 >/dev/null; then
    if [ -z "$small" ] && [ $((seconds - SECONDS + begun)) -ge 20 ]; then
        timeout -k 5 60 python3 benches/gpu_rows.py --runs "$runs" >"$out/rows-in-cuda.json" 2>"$out/rows-in-cuda.err" ||
            { rm -f "$out/rows-in-cuda.json"; left+=("rows-in-cuda: $(tail -1 "$out/rows-in-cuda.err")"); }
    fi
    python3 benches/gpu_lab.py "$out" ${against:+--against "$against"}
fi
[ ${#left[@]} = 0 ] || say "not measured: ${left[*]}"
say "$((SECONDS - begun)) s; results are in $out"
if [ ${#failures[@]} -gt 0 ]; then
    printf 'gpu_lab: FAILED: %s\n' "${failures[@]}" >&2
    exit 1
fi
