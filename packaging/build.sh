#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
# Builds a package of perfguard from this tree, outside of it.
#
#   packaging/build.sh deb|rpm DIRECTORY    puts the package into the directory
set -eu
tree=$(cd "$(dirname "$0")/.." && pwd)
kind=${1:-}
out=${2:-}
case $kind in
    deb) tools='dpkg-buildpackage dh cc' ;;
    rpm) tools='rpmbuild cc' ;;
    *) out= ;;
esac
if [ -z "$out" ]; then
    echo 'usage: packaging/build.sh deb|rpm DIRECTORY' >&2
    exit 2
fi
for tool in $tools; do
    command -v "$tool" >/dev/null || { echo "build.sh: $tool is not installed" >&2; exit 3; }
done
mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Without what builds and tests leave in a tree.
copy() {
    mkdir "$1"
    tar -C "$tree" --exclude=__pycache__ --exclude=node_modules --exclude=.build --exclude='*.so' \
        --exclude='*.egg-info' -cf - COPYING MANIFEST.in README.md debian doc monitoring packaging \
        setup.cfg setup.py src | tar -C "$1" -xf -
}

if [ "$kind" = deb ]; then
    copy "$work/perfguard"
    (cd "$work/perfguard" && dpkg-buildpackage -us -uc -b)
    cp "$work"/*.deb "$work"/*.changes "$work"/*.buildinfo "$out"
else
    version=$(sed -n 's/^Version: *//p' "$tree/packaging/ceph-mgr-perfguard.spec")
    copy "$work/perfguard-$version"
    tar -C "$work" -czf "$work/perfguard-$version.tar.gz" "perfguard-$version"
    # Dependencies are checked where RPM knows what is installed.
    nodeps=
    command -v dpkg >/dev/null && nodeps=--nodeps
    PATH=/usr/bin:/bin rpmbuild -bb $nodeps --define "_topdir $work/rpm" \
        --define "_sourcedir $work" "$work/perfguard-$version/packaging/ceph-mgr-perfguard.spec"
    cp "$work"/rpm/RPMS/*/*.rpm "$out"
fi
ls "$out"
