#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
# Builds a package of perfguard from this tree, outside of it.
#
#   packaging/build.sh deb|rpm|tar DIRECTORY    puts the package into the directory
#
# "tar" is for cephadm: the archive contains the program that installs it.
set -eu
tree=$(cd "$(dirname "$0")/.." && pwd)
kind=${1:-}
out=${2:-}
case $kind in
    deb) tools='dpkg-buildpackage dh cc' ;;
    rpm) tools='rpmbuild cc' ;;
    tar) tools='objdump cc' ;;
    *) out= ;;
esac
if [ -z "$out" ]; then
    echo 'usage: packaging/build.sh deb|rpm|tar DIRECTORY' >&2
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

# The native engine must run in Ceph's own images, whose C library is older than that of most
# machines that build it. Without it probes use their Python engine.
glibc_max=2.34

archive() {
    version=$(sed -n "s/^VERSION = '\(.*\)'/\1/p" "$tree/src/pybind/mgr/perfguard/version.py")
    name=perfguard-$version-$(uname -m)
    copy "$work/source"
    (cd "$work/source" && /usr/bin/python3 setup.py -q install --root "$work/root" \
        --install-lib / --install-scripts /bin)
    mkdir "$work/$name"
    mv "$work/root/perfguard" "$work/root/dashboard" "$work/$name"
    find "$work/$name" -name __pycache__ -prune -exec rm -r {} +
    engine=perfguard/probe/worker/core.so
    newest=$({ objdump -T "$work/$name/$engine" || true; } |
        sed -n 's/.*GLIBC_\([0-9.]*\).*/\1/p' | sort -V | tail -n 1)
    if [ "$(printf '%s\n' "$newest" $glibc_max | sort -V | tail -n 1)" != $glibc_max ]; then
        echo "without the native engine, which would need the C library $newest" >&2
        rm -f "$work/$name/$engine"
    fi
    cd "$work/$name"
    find perfguard dashboard -type f | LC_ALL=C sort | xargs sha256sum > SHA256SUMS
    echo "$version" > VERSION
    install -m 755 "$tree/packaging/install_cephadm.py" install-cephadm
    cp -r "$tree/COPYING" "$tree/monitoring/perfguard_alerts.yml" "$tree/monitoring/grafana" \
        "$tree/monitoring/snmp" .
    tar -C "$work" --owner=0 --group=0 -czf "$out/$name.tar.gz" "$name"
}

if [ "$kind" = tar ]; then
    archive
elif [ "$kind" = deb ]; then
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
