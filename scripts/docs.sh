#!/usr/bin/env bash
# Builds the documentation without warnings: the book in target/book, the reference of the library in
# target/doc and, where it can be built, that of the Python package. Checks all links of the book.
#
#   scripts/docs.sh         everything
#   scripts/docs.sh book    the book alone; not built if mdBook cannot be installed
#
# Installs mdBook under target/tools unless it is there; the first call takes under a minute for that.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo=${CARGO:-cargo}
version=0.5.4

say() { echo "docs: $*"; }
fail() { echo "docs: $*" >&2; exit 1; }

# Prints the path of mdBook. A build without optimization is quick, and quick enough.
mdbook() {
    local program=target/tools/bin/mdbook
    if [ "$($program --version 2>/dev/null)" != "mdbook v$version" ]; then
        say "installing mdBook $version" >&2
        "$cargo" install mdbook --version "$version" --locked --quiet --debug --no-default-features --features search \
            --root target/tools --target-dir target/tools/build >&2 || return 1
        rm -rf target/tools/build
    fi
    echo "$program"
}

book() {
    local program log
    if ! program=$(mdbook); then
        [ "$1" = book ] || fail 'mdBook cannot be installed'
        say 'mdBook cannot be installed: the book is not built'
        return
    fi
    rm -rf target/book target/pages
    cp -r docs target/pages
    # Records of decisions are listed by their index, in its order.
    sed -n 's|^- \[\(.*\)\](\([0-9].*\.md\))$|  - [\1](decisions/\2)|p' docs/decisions/README.md >>target/pages/SUMMARY.md
    log=$("$program" build target/pages/book --dest-dir "$PWD/target/book" 2>&1) || fail "$log"
    ! grep -E '(WARN|ERROR)' <<<"$log" || fail 'mdBook warns'
    # Pages link to examples and documents beside the folder `docs`, which the book gets copies of.
    mkdir -p target/book/examples target/book/benches
    cp examples/*.rs target/book/examples/
    cp -r benches/results target/book/benches/
    cp README.md ARCHITECTURE.md CONTRIBUTING.md CHANGELOG.md target/book/
    find target/book -name '*.html' -exec sed -i -E 's#"((\.\./)*)\.\./examples/#"\1examples/#g
        s#"((\.\./)*)\.\./(README|ARCHITECTURE|CONTRIBUTING|CHANGELOG|benches/results/[^".]*)\.html#"\1\3.md#g' {} +
    if command -v python3 >/dev/null; then python3 scripts/links.py target/book; else say 'Python is not here: links are not checked'; fi
    say 'the book is target/book/index.html'
}

case ${1:-all} in
    book) book book ;;
    all)
        book all
        RUSTDOCFLAGS='-D warnings' "$cargo" doc --quiet --no-deps --features image,mpi,hdf5 --lib
        say 'the library is target/doc/meshloom/index.html'
        if grep -q '^ *docs)' scripts/python.sh; then bash scripts/python.sh docs; fi
        ;;
    *) echo 'usage: scripts/docs.sh [book]' >&2; exit 2 ;;
esac
