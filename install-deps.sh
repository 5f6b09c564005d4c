#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
# Installs what perfguard's checks and test clusters need on Debian 12: with "demo" only what the
# demonstration needs, with "nightly" also what builds packages. Releases of Ceph other than the
# packaged one are built into chroots by qa/cluster when they are first needed.
set -eu

# What runs a cluster, and what the checks want beyond that.
packages='ceph-mon ceph-mgr ceph-osd ceph-common ceph-mgr-modules-core ceph-mgr-dashboard
python3-rados python3-rbd python3-prettytable debootstrap python3-numpy python3-pip gcc libc6-dev'
checks='python3-pytest python3-pytest-xdist python3-pytest-timeout python3-pytest-cov
python3-hypothesis mypy flake8 python3-mock tox python3-setuptools python3-venv fio chromium
chromium-driver python3-selenium prometheus python3-sphinx'
# What ./check.sh nightly builds and checks packages and the mixin with.
builders='debhelper lintian rpm rpmlint jsonnet'

fail() {
    echo "install-deps.sh: $*" >&2
    exit 1
}

ID=unknown VERSION_ID=unknown
[ -r /etc/os-release ] && . /etc/os-release
if [ "$ID" != debian ] || [ "$VERSION_ID" != 12 ]; then
    fail "Debian 12 is needed, this is $ID $VERSION_ID. Elsewhere install by hand Ceph Pacific's
mon, mgr, osd and common packages with its mgr modules and the dashboard, librados' Python binding
for /usr/bin/python3, and debootstrap, pytest with xdist, timeout and cov, hypothesis, mock, mypy,
flake8, tox, numpy, Node.js with npm, Chromium with its driver, selenium and Prometheus."
fi

step=${1:-checks}
if [ "$step" = checks ] || [ "$step" = nightly ]; then
    packages="$packages $checks"
    [ "$step" = checks ] || packages="$packages $builders"
    # For the page; from elsewhere they are as good.
    command -v node >/dev/null && command -v npm >/dev/null || packages="$packages nodejs npm"
elif [ "$step" != demo ]; then
    fail 'usage: ./install-deps.sh [demo|checks|nightly]'
fi

missing=
for package in $packages; do
    status=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)
    [ "$status" = 'install ok installed' ] || missing="$missing $package"
done
if [ -z "$missing" ]; then
    echo 'install-deps.sh: everything is installed'
    exit 0
fi

as_root=
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || fail "run as root, to install:$missing"
    as_root=sudo
fi

# The packages' scripts must not start a daemon. A policy that is already there is kept.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap '$as_root rm -f "$policy"' EXIT
    trap 'exit 130' INT TERM
    printf '#!/bin/sh\nexit 101\n' | $as_root tee "$policy" >/dev/null
    $as_root chmod 755 "$policy"
fi

$as_root apt-get update -q
# shellcheck disable=SC2086
$as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -q --no-install-recommends $missing

# It would listen from the next boot on; the tests start one of their own.
case "$missing " in
    *' prometheus '*)
        if command -v systemctl >/dev/null; then
            $as_root systemctl disable --quiet prometheus || true
        fi
        ;;
esac
