#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
# All of perfguard's checks. Without an argument: installs what they need (Debian) and runs them
# all; the real-cluster tests boot Pacific, Reef and Tentacle on the loopback address.
#
#   ./check.sh [lint|mypy|py|web|cluster] [pytest's arguments]
set -eu
cd "$(dirname "$0")"

python=/usr/bin/python3
units=src/pybind/mgr/perfguard/tests
web=src/pybind/mgr/perfguard/web
releases=--release=pacific,reef,tentacle
# Real-cluster tests mostly wait, so that two lanes of them get on side by side; those in which
# latency or seconds matter run alone, after the others.
beside='qa/tests/test_balanced.py qa/tests/test_join.py qa/tests/test_mitigation.py
qa/tests/test_probe_trouble.py qa/tests/test_probe_placement.py'
alone='qa/tests/test_throttle.py qa/tests/test_watch.py'
export PYTHONPATH="$PWD/src/pybind/mgr:$PWD" PYTHONDONTWRITEBYTECODE=1

lint() {
    echo '== lint'
    "$python" -m flake8 src qa setup.py
}

# With python_version = 3.9 in setup.cfg this also is the check that everything runs on Python 3.9.
types() {
    echo '== mypy'
    "$python" -m mypy src/pybind/mgr/perfguard qa setup.py
}

# The page in the tree must be what its sources make: byte for byte.
page() {
    echo '== web'
    (
        cd "$web"
        npm ci --no-audit --no-fund --loglevel=error
        npm run --silent types
        npm run --silent test
        node build.mjs page .build/page
        diff -r page .build/page ||
            { echo "the page is not up to date: run 'npm run build' in $web" >&2; exit 1; }
    )
}

tests() {
    echo '== tests'
    "$python" -m pytest -q --durations=10 "$@"
}

clusters() {
    log=$(mktemp)
    # shellcheck disable=SC2086
    "$python" -m pytest -q --durations=10 $beside $releases >"$log" 2>&1 &
    lane=$!
    # Its clusters end with it.
    trap 'kill -KILL $lane 2>/dev/null || :; rm -f "$log"' EXIT
    failed=
    # The option is known to pytest only where qa/tests is named, and before it.
    # shellcheck disable=SC2086,SC2046
    tests qa/tests $releases $(printf ' --ignore=%s' $beside $alone) || failed=yes
    wait $lane || failed=yes
    cat "$log"
    trap - EXIT
    rm -f "$log"
    # shellcheck disable=SC2086
    tests $alone $releases || failed=yes
    test -z "$failed"
}

step=${1:-all}
[ $# = 0 ] || shift
case $step in
    lint) lint ;;
    mypy) types ;;
    py) tests "$units" "$@" ;;
    web) page ;;
    cluster)
        if [ $# = 0 ]; then clusters; else tests qa/tests $releases "$@"; fi
        ;;
    all)
        ./install-deps.sh
        lint
        types
        page
        # Built once, before the tests, so that no test's time is that of a download.
        "$python" -m qa.cluster build reef tentacle
        tests "$units"
        clusters
        ;;
    *)
        echo "usage: ./check.sh [lint|mypy|py|web|cluster] [pytest's arguments]" >&2
        exit 2
        ;;
esac
