#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
# All of perfguard's checks. Without an argument: installs what they need (Debian) and runs the
# quick tier, in which each test on a real cluster runs on one release. "nightly" runs every test
# on every release that it is meant for: Pacific, Reef and Tentacle, on the loopback address.
#
#   ./check.sh [quick|nightly]
#   ./check.sh lint|mypy|py|py39|packages|web|cluster [pytest's arguments]
#   ./check.sh mutants [qa/mutate.py's arguments]
#
# PERFGUARD_ARTEFACTS names the directory of what the tests leave: durations, logs of failed
# clusters, screenshots. PERFGUARD_WORKERS: how many clusters' tests run side by side.
set -eu
cd "$(dirname "$0")"

python=/usr/bin/python3
units=src/pybind/mgr/perfguard/tests
web=src/pybind/mgr/perfguard/web
tier=quick
build=build
# Failed tests in more files than these are no accident. Those of one file share a cluster, and fail
# together if a daemon of it does.
again_max=6
# The process that builds what clusters of cephadm need.
rig=
# Tests on real clusters mostly wait. What they wait for may take longer beside others.
workers=${PERFGUARD_WORKERS:-5}
export PERFGUARD_PATIENCE="${PERFGUARD_PATIENCE:-3}"
export PERFGUARD_ARTEFACTS="${PERFGUARD_ARTEFACTS:-$PWD/build/artefacts}"
export PYTHONPATH="$PWD/src/pybind/mgr:$PWD" PYTHONDONTWRITEBYTECODE=1

begin() {
    echo "== $1 ($(date -u +%H:%M:%S))"
}

lint() {
    begin lint
    "$python" -m flake8 src qa packaging setup.py
}

# With python_version = 3.9 in setup.cfg this also is the check that everything runs on Python 3.9.
types() {
    begin mypy
    "$python" -m mypy src/pybind/mgr/perfguard qa packaging/install_cephadm.py setup.py
}

# The page in the tree must be what its sources make: byte for byte.
page() {
    begin web
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

# pytest ends with this script, however that ends. Usage: tests NAME pytest's arguments
tests() {
    begin "$1 tests"
    report=$1
    shift
    mkdir -p "$PERFGUARD_ARTEFACTS" "$build"
    setpriv --pdeathsig INT "$python" -m pytest -o junit_family=xunit2 \
        --junitxml="$PERFGUARD_ARTEFACTS/$report.xml" "$@"
}

unit() {
    if [ "$tier" = nightly ]; then
        # In a subshell: what follows runs with the usual number of examples.
        (
            export PERFGUARD_FUZZ=600 PERFGUARD_CRASHES=1 PERFGUARD_STORIES=40
            # Which test runs which line: for the mutants.
            export COVERAGE_FILE="$build/unit.coverage"
            tests unit "$units" -q -n 2 --durations=10 --cov=perfguard --cov-context=test \
                --cov-report=term:skip-covered "$@"
        )
    else
        tests unit "$units" -q -n 2 --durations=10 "$@"
    fi
}

# Do the unit tests notice faults? Other ones each night. Survivors are printed; each of them needs a
# look, as some change nothing, so they do not fail the check.
mutants() {
    begin mutants
    report=$PERFGUARD_ARTEFACTS/unit.xml
    [ ! -s "$report" ] || set -- --durations "$report" "$@"
    [ ! -s "$build/unit.coverage" ] || set -- --coverage "$build/unit.coverage" "$@"
    "$python" -m qa.mutate --seed "$(date -u +%Y%j)" "$@"
}

# The path of a Python 3.9, which Ceph's own containers run, if this machine has one.
find_oldest() {
    for found in ${PERFGUARD_PYTHON39:-} python3.9 "${HOME:-/}"/.pyenv/versions/3.9.*/bin/python; do
        if "$found" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 9))' 2>/dev/null; then
            echo "$found"
            return
        fi
    done
}

# In the quick tier everything is compiled; in the nightly tier the unit tests run, but for those
# that need librados' binding, which is built for one Python only.
oldest() {
    begin 'Python 3.9'
    found=$(find_oldest)
    if [ -z "$found" ]; then
        echo 'not run: there is no Python 3.9 here (PERFGUARD_PYTHON39 may name one)'
        return
    fi
    if [ "$tier" = quick ]; then
        # Into a directory of its own: the tree stays as it is.
        env -u PYTHONDONTWRITEBYTECODE PYTHONPYCACHEPREFIX="$PWD/build/pycache" \
            "$found" -m compileall -q -f src/pybind/mgr/perfguard
        rm -rf build/pycache
        echo "everything compiles with $found"
        return
    fi
    venv=build/python3.9
    if ! { "$found" -m venv "$venv" && "$venv/bin/python" -m pip install -q 'pytest<8' \
            'pytest-xdist<3.6' 'pytest-timeout' hypothesis prettytable 'numpy<2.1' cherrypy; }; then
        echo 'not run: no environment with pytest for Python 3.9 can be made'
        return
    fi
    "$venv/bin/python" -m pytest -q "$units" -n 2 --ignore="$units/test_doc.py" \
        --ignore="$units/probe/test_native.py" --ignore="$units/probe/test_image.py" \
        --ignore-glob="$units/probe/test_worker*.py"
}

# What operators install. The tests of the nightly tier boot clusters with it.
packages() {
    begin packages
    for kind in deb rpm; do
        if [ $kind = deb ]; then linter=lintian; else linter=rpmlint; fi
        rm -rf "$build/$kind"
        mkdir -p "$build"
        status=0
        packaging/build.sh $kind "$build/$kind" > "$build/$kind.log" 2>&1 || status=$?
        if [ $status = 3 ]; then
            echo "no $kind package: not run, $(tail -1 "$build/$kind.log")"
            continue
        elif [ $status != 0 ]; then
            tail -30 "$build/$kind.log"
            exit 1
        fi
        if ! command -v $linter > /dev/null; then
            echo "the $kind package is built; not checked, $linter is not installed"
        elif [ $kind = deb ]; then
            lintian --fail-on error,warning "$build/deb/"*.changes
        else
            rpmlint --config packaging/rpmlint.toml "$build/rpm/"*.rpm \
                packaging/ceph-mgr-perfguard.spec
        fi
    done
}

# The first time it takes minutes, in the background, which ends with this script.
build_rig() {
    setpriv --pdeathsig TERM timeout 1800 "$python" -m qa.cephadm build &
    rig=$!
}

# Tests that judge latency run alone, after the others.
clusters() {
    # Far more than they take: it ends what hangs.
    limit=3600
    if [ "$tier" = nightly ]; then
        limit=21600
        export PERFGUARD_CROWD=1000000
    fi
    # Built once, before the tests, so that no test's time is that of a download.
    "$python" -m qa.cluster build reef tentacle
    [ -n "$rig" ] || build_rig
    # Where that is impossible, pytest says at the end what it did not run.
    wait "$rig" || echo 'there is no cluster of cephadm here'
    mkdir -p "$build"
    : > "$build/failed"
    cluster_tests cluster -v -n "$workers" --dist=loadgroup -m 'not alone'
    cluster_tests alone -m alone
    [ ! -s "$build/failed" ] || again
}

# Ends the check if anything else than a failed test is wrong. Usage: cluster_tests NAME pytest's
# arguments
cluster_tests() {
    status=0
    tests "$@" qa/tests --tier="$tier" --limit=$limit --durations=0 --durations-min=5 \
        --failed-to="$build/failed-now" || status=$?
    [ $status = 0 ] || { [ $status = 1 ] && [ -s "$build/failed-now" ]; } || exit $status
    cat "$build/failed-now" >> "$build/failed"
}

# Some dozens of daemons on two cores: a test may miss a deadline because of its neighbours. A few
# failed tests run once more, one after another. A second failure fails the check; what passes now
# is named, as a test that passes only now and then needs a look.
again() {
    count=$(wc -l < "$build/failed")
    if [ "$(sed 's/::.*//' "$build/failed" | sort -u | wc -l)" -gt "$again_max" ]; then
        echo "$count tests failed" >&2
        return 1
    fi
    begin "$count failed tests again"
    xargs -d '\n' setpriv --pdeathsig INT "$python" -m pytest -o junit_family=xunit2 \
        --junitxml="$PERFGUARD_ARTEFACTS/again.xml" --limit=1500 --tier="$tier" -v \
        < "$build/failed"
    echo 'these passed only when run again, alone; what failed first is above:'
    sed 's/^/    /' "$build/failed"
}

everything() {
    if [ "$tier" = quick ]; then ./install-deps.sh; else ./install-deps.sh nightly; fi
    rm -rf "$PERFGUARD_ARTEFACTS/logs"
    build_rig
    lint
    types
    page
    unit
    [ "$tier" = quick ] || mutants
    oldest
    [ "$tier" = quick ] || packages
    clusters
    begin end
}

step=${1:-quick}
[ $# = 0 ] || shift
case $step in
    lint) lint ;;
    mypy) types ;;
    py) unit "$@" ;;
    py39)
        tier=nightly
        oldest
        ;;
    mutants) mutants "$@" ;;
    packages) packages ;;
    web) page ;;
    cluster)
        if [ $# = 0 ]; then clusters; else tests cluster qa/tests "$@"; fi
        ;;
    quick | nightly)
        tier=$step
        everything
        ;;
    *)
        echo "usage: ./check.sh [quick|nightly|lint|mypy|py|py39|mutants|packages|web|cluster] [arguments]" >&2
        exit 2
        ;;
esac
