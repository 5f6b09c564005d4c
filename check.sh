#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
# All of perfguard's checks. Without an argument: installs what they need (Debian) and runs them
# all; the real-cluster tests boot Pacific, Reef and Tentacle on the loopback address.
#
#   ./check.sh [lint|mypy|py|cluster] [pytest's arguments]
set -eu
cd "$(dirname "$0")"

python=/usr/bin/python3
units=src/pybind/mgr/perfguard/tests
# The option is known to pytest only where qa/tests is named, and before it.
clusters='qa/tests --release=pacific,reef,tentacle'
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

tests() {
    echo '== tests'
    "$python" -m pytest -q --durations=10 "$@"
}

step=${1:-all}
[ $# = 0 ] || shift
case $step in
    lint) lint ;;
    mypy) types ;;
    py) tests "$units" "$@" ;;
    cluster) tests $clusters "$@" ;;
    all)
        ./install-deps.sh
        lint
        types
        # Built once, before the tests, so that no test's time is that of a download.
        "$python" -m qa.cluster build reef tentacle
        tests "$units" $clusters
        ;;
    *)
        echo "usage: ./check.sh [lint|mypy|py|cluster] [pytest's arguments]" >&2
        exit 2
        ;;
esac
