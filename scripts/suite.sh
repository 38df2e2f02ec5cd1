#!/usr/bin/env bash
# All tests, over one build: every program as it is, many once more in the forms that other devices get and under what looks for errors, the documentation, other
# features, another MPI library, and the Python package. `make test` comes here when lints have passed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo=${CARGO:-cargo}

# All features, and the Python package, too: crates that several builds share have the same features in each then, and are compiled once.
features='--workspace --features reference,mpi,hdf5,gpu-direct'

# Ranks as processes, and exchanges of their devices, without debug assertions, as in release builds. Few tests want a quick build more than quick code; `--release`
# would build all dependencies anew, for four minutes and more. This build has no HDF5 and none of the libraries of bench --reference, and says so.
without_assertions='--workspace --features mpi --config profile.dev.package.meshloom.debug-assertions=false --config profile.dev.package.meshloom.opt-level=0
    --config profile.dev.package.meshloom-program.debug-assertions=false --config profile.dev.package.meshloom-program.opt-level=0
    --test cli --test mpi -- features:: sort:: comm:: exchange::'
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

# Programs by how long they take, the longest first; those that the list leaves out follow. Programs that start others come last: these all compile the same kernels at
# the same time if nobody has left them in the driver's cache.
longest_first='points pm inference operators fft devices exchange'
starts_others='/(cli|bench|hdf5|unfinished|mpi)-'
# Workgroups run one after the other, without lavapipe's threads: waking these takes a third of the time of tests with many small dispatches. Programs whose kernels
# depend on workgroups that run at the same time keep the threads.
inline='LP_NUM_THREADS=0'

lines() {
    # What takes longest begins.
    echo "$inline bash scripts/python.sh test"
    of 'MESHLOOM_SANITIZE=1 MESHLOOM_PROFILE=gpu' fft -- fft::shapes_of fft::every_grid fft::fields_of fft::filters_of fft::transforms_in_place
    echo 'bash scripts/docs.sh book'
    echo "RUSTDOCFLAGS='-D warnings' $cargo doc --no-deps $features --lib --example sph_sum"
    # The library alone: the program would add features to it.
    local alone='-p meshloom --no-default-features --lib'
    local check="$cargo check $alone"
    if "$cargo" clippy --version >/dev/null 2>&1; then check="$cargo clippy $alone -- -D warnings"; fi
    echo "$check && RUSTDOCFLAGS='-D warnings' $cargo doc --no-deps $alone"

    local name
    for name in $longest_first; do
        case $name in
            operators | inference | pm) of "$inline" "$name" ;;
            *) of '' "$name" ;;
        esac
    done
    grep -vE "/(${longest_first// /|})-|$starts_others" <<<"$programs"
    grep -E "$starts_others" <<<"$programs"
    # By another MPI library; its ranks wait busily, and few programs are left to disturb.
    [ -z "$mpich" ] || echo "JOBS=1 bash scripts/mpich.sh $without_assertions"
    echo "RUSTC_WORKSPACE_WRAPPER=$here/scripts/rustc.sh $cargo test $features --doc"

    # Kernels, primitives and searches in the form that GPUs get.
    of 'MESHLOOM_PROFILE=gpu' devices -- device:: primitives::
    of 'MESHLOOM_PROFILE=gpu' operators -- linear_operators::
    of 'MESHLOOM_PROFILE=gpu' pm -- mesh::
    of 'MESHLOOM_PROFILE=gpu' points -- components:: point_kernels:: sort:: neighbors::facts_of neighbors::histograms_of neighbors::the_nearest_of neighbors::pairs_by particles_api::other_targets
    of 'MESHLOOM_PROFILE=gpu' bench -- exchanges

    # Kernels in the sanitizer, which finds races, accesses outside of arrays and what a driver gets wrong; then in the place of devices with subgroups of 32 and 64.
    of 'MESHLOOM_SANITIZE=compare' exchange -- exchange:: ghost_cells:: redistribution::
    of 'MESHLOOM_SANITIZE=compare' operators -- linear_operators:: stacks::
    of 'MESHLOOM_SANITIZE=compare' pm -- mesh::
    of 'MESHLOOM_SANITIZE=compare' points -- particles:: sort::
    for lanes in 32 64; do
        of "MESHLOOM_SANITIZE=$lanes MESHLOOM_PROFILE=gpu" points -- neighbors::facts_of neighbors::few_points neighbors::distances_of
        of "MESHLOOM_SANITIZE=$lanes MESHLOOM_PROFILE=gpu" points -- point_kernels:: sort::
    done
    of 'MESHLOOM_SANITIZE=32 MESHLOOM_PROFILE=gpu' points -- neighbors::histograms_of
    of 'MESHLOOM_SANITIZE=64 MESHLOOM_PROFILE=gpu' points -- neighbors::callbacks_see

    # What drivers are asked for.
    if [ -e "$validation_layer" ]; then
        echo "JOBS=1 bash scripts/validation.sh $features --test devices --test exchange -- device:: guest:: soundness:: exchange:: ghost_cells::"
    else say 'the Vulkan validation layer is not here, its tests are skipped'; fi

    # Groups, primitives, searches and sorts with subgroups of 4 and 16.
    for width in 128 512; do
        of "LP_NATIVE_VECTOR_WIDTH=$width" devices -- primitives::
        of "LP_NATIVE_VECTOR_WIDTH=$width" points -- components:: point_kernels:: sort:: neighbors::facts_of
    done

    # A device without any optional feature.
    if [ -e "$swiftshader" ]; then
        local driver="VK_DRIVER_FILES=$here/$swiftshader"
        local skipped='--skip every_operator --skip memory_is_what_was_said --skip derivatives_have_the_same_bits_in_many_windows'
        # shellcheck disable=SC2086 # Words of a list.
        {
            of "$driver" devices -- device:: guest:: soundness:: $skipped
            of "$driver" exchange -- collectives:: exchange:: ghost_cells:: $skipped
            of "$driver" inference -- models:: $skipped
            of "$driver" operators -- linear_operators:: operators:: $skipped
            of "$driver" pm -- mesh:: simulation::the_golden_run simulation::every_rank_count $skipped
            of "$driver" points -- components:: sort:: neighbors::facts_of scales::two_axes $skipped
        }
        of "$driver" shallow_water -- ranks_or_grids two_mistakes
        # Windows that are bound together, as GPUs bind them; lavapipe 22 cannot.
        of "$driver MESHLOOM_PROFILE=gpu" devices fft -- windows
        of "$driver MESHLOOM_PROFILE=gpu" exchange -- redistribution::arrays_may_be_cut_into_windows
        of "$driver MESHLOOM_PROFILE=gpu" points -- components::windows sort::arrays_in_many_windows
    else say 'SwiftShader is not here, its tests are skipped'; fi
}

all=$(lines)
bash scripts/beside.sh <<<"$all"
# In the same build directory, where the program that tests start is replaced: afterwards.
[ -n "$mpich" ] || { say 'MPICH is not here: without assertions there are ranks of one MPI library'; bash scripts/tests.sh $without_assertions; }
