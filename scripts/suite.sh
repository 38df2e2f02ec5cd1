#!/usr/bin/env bash
# All tests, over one build: every program as it is, many once more in the forms that other devices get and under what looks for errors, the documentation, other
# features, another MPI library, and the Python package. `make test` comes here when lints have passed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo=${CARGO:-cargo}

# All features, and the Python package, too: crates that several builds share have the same features in each then, and are compiled once.
features='--workspace --features reference,mpi,hdf5'

# Ranks as processes, and exchanges of their devices, without debug assertions, as in release builds. Few tests want a quick build more than quick code; `--release`
# would build all dependencies anew, for four minutes and more. This build has no HDF5 and none of the libraries of bench --reference, and says so.
without_assertions='--workspace --features mpi --config profile.dev.package.meshloom.debug-assertions=false --config profile.dev.package.meshloom.opt-level=0
    --config profile.dev.package.meshloom-program.debug-assertions=false --config profile.dev.package.meshloom-program.opt-level=0
    --test cli_features --test cli_sort --test comm_mpi --test exchange_mpi'
without_assertions=$(tr -s '\n ' ' ' <<<"$without_assertions")
mpich=''
if command -v mpicc.mpich mpirun.mpich >/dev/null; then mpich=yes; fi

# In lines paths are written as a shell reads them back.
here=$(printf %q "$PWD")
swiftshader=target/swiftshader/vk_swiftshader_icd.json
validation_layer=/usr/share/vulkan/explicit_layer.d/VkLayer_khronos_validation.json

say() { echo "suite: $*" >&2; }

# shellcheck disable=SC2086 # Words of a list.
programs=$(bash scripts/programs.sh $features --tests)
programs=$(while IFS= read -r program; do printf '%q\n' "$program"; done <<<"$programs")

# Lines of some programs in an environment: ENVIRONMENT PROGRAM... [-- ARGUMENTS]
of() {
    local environment=$1 names=() name program
    shift
    while [ $# -gt 0 ] && [ "$1" != -- ]; do names+=("$1"); shift; done
    [ $# = 0 ] || shift
    for name in "${names[@]}"; do
        program=$(grep "/$name-[0-9a-f]*\$" <<<"$programs") || { say "there is no program of tests $name"; exit 1; }
        echo "$environment $program $*"
    done
}

# Programs that start others, which all compile the same kernels at the same time if nobody has left them in the driver's cache.
starts_others='/(cli|cli_.*|bench|nonlinear|output|power|vendors|hdf5_python|.*_mpi)-'

lines() {
    # What takes longest begins. The package is built here, which leaves a core free at times.
    echo 'bash scripts/python.sh test'
    of 'MESHLOOM_SANITIZE=1 MESHLOOM_PROFILE=gpu' fft -- shapes_of every_grid fields_of filters_of transforms_in_place
    echo "RUSTDOCFLAGS='-D warnings' $cargo doc --no-deps $features --lib --example sph_sum"
    local without_features="$cargo check --no-default-features --lib"
    if "$cargo" clippy --version >/dev/null 2>&1; then without_features="$cargo clippy --no-default-features --lib -- -D warnings"; fi
    echo "$without_features && RUSTDOCFLAGS='-D warnings' $cargo doc --no-deps --no-default-features --lib"

    grep -vE "$starts_others" <<<"$programs"
    grep -E "$starts_others" <<<"$programs"
    # By another MPI library; its ranks wait busily, and few programs are left to disturb.
    [ -z "$mpich" ] || echo "JOBS=1 bash scripts/mpich.sh $without_assertions"
    echo "RUSTC_WORKSPACE_WRAPPER=$here/scripts/rustc.sh $cargo test $features --doc"

    # Kernels, primitives and searches in the form that GPUs get.
    of 'MESHLOOM_PROFILE=gpu' components device linear_operators mesh point_kernels primitives sort
    of 'MESHLOOM_PROFILE=gpu' neighbors -- facts_of histograms_of nearest_of pairs_by
    of 'MESHLOOM_PROFILE=gpu' bench -- exchanges

    # Kernels in the sanitizer, which finds races, accesses outside of arrays and what a driver gets wrong; then in the place of devices with subgroups of 32 and 64.
    of 'MESHLOOM_SANITIZE=compare' exchange ghost_cells linear_operators mesh particles redistribution sort
    for lanes in 32 64; do
        of "MESHLOOM_SANITIZE=$lanes MESHLOOM_PROFILE=gpu" neighbors -- facts_of few_points distances_of
        of "MESHLOOM_SANITIZE=$lanes MESHLOOM_PROFILE=gpu" point_kernels sort
    done
    of 'MESHLOOM_SANITIZE=32 MESHLOOM_PROFILE=gpu' neighbors -- histograms_of
    of 'MESHLOOM_SANITIZE=64 MESHLOOM_PROFILE=gpu' neighbors -- callbacks_see

    # What drivers are asked for.
    if [ -e "$validation_layer" ]; then
        echo "JOBS=1 bash scripts/validation.sh $features --test device --test exchange --test ghost_cells --test guest --test soundness"
    else say 'the Vulkan validation layer is not here, its tests are skipped'; fi

    # Groups, primitives, searches and sorts with subgroups of 4 and 16.
    for width in 128 512; do
        of "LP_NATIVE_VECTOR_WIDTH=$width" components point_kernels primitives sort
        of "LP_NATIVE_VECTOR_WIDTH=$width" neighbors -- facts_of
    done

    # A device without any optional feature.
    if [ -e "$swiftshader" ]; then
        of "VK_DRIVER_FILES=$here/$swiftshader" components device device_collectives exchange ghost_cells guest inference_models linear_operators mesh operators sort \
            soundness -- --skip every_operator --skip memory_is_what_was_said --skip derivatives_have_the_same_bits_in_many_windows
        of "VK_DRIVER_FILES=$here/$swiftshader" simulation -- golden_run every_rank_count
        of "VK_DRIVER_FILES=$here/$swiftshader" shallow_water -- ranks_or_grids two_mistakes
        of "VK_DRIVER_FILES=$here/$swiftshader" neighbors -- facts_of
        of "VK_DRIVER_FILES=$here/$swiftshader" scales -- two_axes
        # Windows that are bound together, as GPUs bind them; lavapipe 22 cannot.
        of "VK_DRIVER_FILES=$here/$swiftshader MESHLOOM_PROFILE=gpu" components device fft primitives redistribution sort -- windows
    else say 'SwiftShader is not here, its tests are skipped'; fi
}

all=$(lines)
bash scripts/beside.sh <<<"$all"
# In the same build directory, where the program that tests start is replaced: afterwards.
[ -n "$mpich" ] || { say 'MPICH is not here: without assertions there are ranks of one MPI library'; bash scripts/tests.sh $without_assertions; }
