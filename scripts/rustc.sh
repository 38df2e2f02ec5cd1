#!/bin/sh
# rustc for scripts/tests.sh: test programs without optimization, which halves the time of their build, over an optimized library and program.
# `kernels` and `points` are optimized: they compute more on the host than their build takes.
case " $* " in
    *' --crate-name kernels '* | *' --crate-name points '*) exec "$@" ;;
    *' --test '* | *' --cfg test '*) exec "$@" -C opt-level=0 ;;
    *) exec "$@" ;;
esac
