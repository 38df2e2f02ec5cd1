#!/usr/bin/env bash
# Runs the commands on standard input, one per line, with one process per core; JOBS sets another number. Prints the output of each command when it
# ends, with its elapsed and its processor time in seconds. Runs all commands, lists those that failed at the end, and then fails. Kills a command after LIMIT
# seconds (1500), so that a hang names the command.
#
#   scripts/beside.sh <LINES
set -euo pipefail
cores=$(nproc)
# More processes would need memory that few machines have.
[ "$cores" -le 4 ] || cores=4

logs=$(mktemp -d)
export logs LIMIT=${LIMIT:-1500}
# Commands run in process groups of their own, which an interrupt from a terminal does not reach.
trap 'for run in "$logs"/*.pid; do [ ! -e "$run" ] || kill "$(cat "$run")" || true; done; rm -rf "$logs"' EXIT

run() {
    local command=$1 log took status=0 TIMEFORMAT='%0R %0U'
    log=$(mktemp -p "$logs")
    # shellcheck disable=SC2016 # The inner shell expands it.
    took=$({ time timeout --kill-after=30 "$LIMIT" bash -c 'echo $PPID >"$1"; eval "$2"' run "$log.pid" "$command" >"$log" 2>&1; } 2>&1) || status=$?
    rm -f "$log.pid"
    [ "$status" != 124 ] && [ "$status" != 137 ] || echo "ended after $LIMIT seconds" >>"$log"
    {
        flock 9
        printf '\n     Running %s\n' "$command"
        cat "$log"
        # shellcheck disable=SC2086 # Two words.
        printf 'took %d s, %d s of the processor: %s\n' $took "$command"
        [ "$status" = 0 ] || printf 'ended with %d: %s\n' "$status" "$command" | tee -a "$logs/failed"
    } 9>"$logs/lock"
}
export -f run

xargs -d '\n' -P "${JOBS:-$cores}" -I '{}' bash -c 'run "$1"' run '{}'
if [ -e "$logs/failed" ]; then
    echo 'beside: these failed:' >&2
    cat "$logs/failed" >&2
    exit 1
fi
