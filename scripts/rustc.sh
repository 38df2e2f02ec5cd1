#!/bin/sh
# rustc for scripts/tests.sh: programs of tests without optimisation, which takes half of their build, over a library and a program that are optimised.
case " $* " in
    *' --test '* | *' --cfg test '*) exec "$@" -C opt-level=0 ;;
    *) exec "$@" ;;
esac
