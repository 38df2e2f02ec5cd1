#!/usr/bin/env bash
# Sets this machine up: checks Rust, and installs the system packages that are missing.
#
#   scripts/setup.sh demo   what the program needs: a Vulkan loader and any driver (a software renderer if none is there)
#   scripts/setup.sh wheel  what builds the Python package: Python that can make environments
#   scripts/setup.sh test   also the software renderer, the Vulkan validation layer, two MPI libraries, libclang, HDF5 and Python, which the tests use
#
# Runs any number of times; what is there already is left alone.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

purpose=${1:-test}
case $purpose in
    demo | test | wheel) ;;
    *) echo "usage: scripts/setup.sh [demo|wheel|test]" >&2; exit 2 ;;
esac

say() { echo "setup: $*"; }
fail() { echo "setup: $*" >&2; exit 1; }

# Rust, of the version that the manifest asks for.
check_rust() {
    local cargo=${CARGO:-cargo} wanted have
    command -v "$cargo" >/dev/null ||
        fail "cargo is not installed; get Rust from https://rustup.rs and run this again"
    wanted=$(sed -n 's/^rust-version *= *"\(.*\)"/\1/p' Cargo.toml)
    have=$("$cargo" --version | awk '{ print $2 }')
    [ "$(printf '%s\n' "$wanted" "${have%%-*}" | sort -V | head -n 1)" = "$wanted" ] ||
        fail "Rust $wanted or newer is needed, $have is installed; update it with: rustup update stable"
}

# Whether some Vulkan driver is installed, for whatever device.
has_vulkan_driver() {
    [ -n "${VK_DRIVER_FILES:-}${VK_ICD_FILENAMES:-}" ] && return
    compgen -G '/usr/share/vulkan/icd.d/*.json' >/dev/null || compgen -G '/etc/vulkan/icd.d/*.json' >/dev/null
}

# Whether Mesa's software renderer is installed, which the tests run on everywhere.
has_lavapipe() {
    compgen -G '/usr/share/vulkan/icd.d/lvp_icd*.json' >/dev/null ||
        compgen -G '/etc/vulkan/icd.d/lvp_icd*.json' >/dev/null ||
        [[ "${VK_DRIVER_FILES:-}${VK_ICD_FILENAMES:-}" == *lvp_icd* ]]
}

# Whether Python can make environments, in which the tests try the tools that read our files.
can_make_environments() {
    python3 -c 'import ensurepip, venv' 2>/dev/null
}

is_installed() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null || true)" = installed ]
}

# Asks for what is used rather than for the package where it can, since other packages may bring it too. Of clang itself
# only the compiler's own headers are used, by the generator of the MPI bindings.
has_package() {
    case $1 in
        pkg-config) command -v pkg-config >/dev/null ;;
        clang) command -v clang >/dev/null || compgen -G '/usr/lib/llvm-*/lib/clang/*/include/stddef.h' >/dev/null ;;
        openmpi-bin) command -v mpirun >/dev/null ;;
        libopenmpi-dev) command -v mpicc >/dev/null ;;
        mpich) command -v mpirun.mpich >/dev/null ;;
        libmpich-dev) command -v mpicc.mpich >/dev/null ;;
        python3-venv) can_make_environments ;;
        mesa-vulkan-drivers) if [ "$purpose" = test ]; then has_lavapipe; else has_vulkan_driver; fi ;;
        *) is_installed "$1" ;;
    esac
}

setup_debian() {
    local wanted=(libvulkan1 mesa-vulkan-drivers) missing=() package run=()
    if [ "$purpose" = test ]; then
        wanted+=(vulkan-validationlayers libopenmpi-dev openmpi-bin libmpich-dev mpich libclang-dev clang pkg-config libhdf5-dev python3-venv)
    elif [ "$purpose" = wheel ]; then
        wanted=(python3-venv)
    fi
    for package in "${wanted[@]}"; do
        has_package "$package" || missing+=("$package")
    done
    if [ ${#missing[@]} -eq 0 ]; then
        say "all system packages are there"
        return
    fi
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null ||
            fail "packages are missing and there is no sudo; as root run: apt-get install ${missing[*]}"
        run=(sudo)
    fi
    say "installing ${missing[*]}"
    run+=(env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0)
    local log
    log=$(mktemp)
    # apt-get is wordy even when asked to be quiet: its words are of use only when it fails.
    if ! { "${run[@]}" update && "${run[@]}" install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
        cat "$log" >&2
        rm -f "$log"
        fail "installing failed (see above); install by hand: ${missing[*]}"
    fi
    rm -f "$log"
}

# A second software renderer, SwiftShader, which Debian ships inside its browser: it has hardly any optional feature, so
# the tests see what the floor is like. Taken out of the package without installing it; the tests do without if need be.
fetch_swiftshader() {
    local to=target/swiftshader from=./usr/lib/chromium dir
    [ -e "$to/vk_swiftshader_icd.json" ] && return
    apt-cache show chromium-common >/dev/null 2>&1 || { say "no SwiftShader here: its tests will be skipped"; return; }
    dir=$(mktemp -d)
    if (cd "$dir" && apt-get -qq download chromium-common) >/dev/null 2>&1 && mkdir -p "$to" &&
        dpkg-deb --fsys-tarfile "$dir"/chromium-common_*.deb |
        tar -x -C "$to" --strip-components=4 "$from/libvk_swiftshader.so" "$from/vk_swiftshader_icd.json" 2>/dev/null; then
        say "SwiftShader is in $to"
    else
        rm -rf "$to"
        say "SwiftShader could not be had: its tests will be skipped"
    fi
    rm -rf "$dir"
}

# Systems without apt-get are not changed, only advised.
advise() {
    local missing=()
    if [ "$(uname -s)" = Darwin ]; then
        # Metal is part of the system.
        if [ "$purpose" = test ] && ! command -v mpicc >/dev/null; then
            fail "MPI is missing; install it with: brew install open-mpi llvm pkgconf hdf5"
        fi
        return
    fi
    if [ "$purpose" = test ]; then
        has_lavapipe || missing+=("the lavapipe software renderer")
        command -v mpicc >/dev/null || missing+=("MPI")
        command -v clang >/dev/null || missing+=("clang with libclang")
        command -v pkg-config >/dev/null || missing+=("pkg-config")
        pkg-config --exists hdf5 2>/dev/null || command -v h5cc >/dev/null || missing+=("HDF5 with headers")
        can_make_environments || say "no Python with venv here: tests with other tools will be skipped"
    elif [ "$purpose" = wheel ]; then
        can_make_environments || missing+=("Python with venv")
    else
        has_vulkan_driver || missing+=("a Vulkan driver")
    fi
    if [ ${#missing[@]} -eq 0 ]; then
        say "all that is needed is there"
        return
    fi
    say "missing: $(printf '%s, ' "${missing[@]}" | sed 's/, $//')" >&2
    if command -v dnf >/dev/null; then
        fail "install with: sudo dnf install mesa-vulkan-drivers vulkan-loader openmpi-devel clang-devel pkgconf hdf5-devel" \
            "(and load MPI with: module load mpi/openmpi-x86_64)"
    elif command -v pacman >/dev/null; then
        fail "install with: sudo pacman -S vulkan-swrast vulkan-icd-loader openmpi clang pkgconf hdf5"
    else
        fail "install Mesa's Vulkan drivers (with lavapipe), the Vulkan loader, Open MPI and HDF5 with headers, libclang, pkg-config"
    fi
}

check_rust
if command -v apt-get >/dev/null && command -v dpkg-query >/dev/null; then
    setup_debian
    if [ "$purpose" = test ]; then
        fetch_swiftshader
    fi
else
    advise
fi
