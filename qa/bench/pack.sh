#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
# Packs the bench of expansions for a machine without Ceph: the programs of Ceph and what they need,
# from the packages of this machine, and this tree.
#
#   qa/bench/pack.sh ARCHIVE
#
# On another Linux machine of the same architecture, as root:
#
#   mkdir bench && tar -C bench -xzf ARCHIVE && bench/expand [the bench's arguments]
set -eu

fail() {
    echo "pack.sh: $*" >&2
    exit 1
}

[ $# = 1 ] || fail 'usage: qa/bench/pack.sh ARCHIVE'
archive=$(realpath "$1")
cd "$(dirname "$0")/../.."

roots='ceph-mon ceph-mgr ceph-osd ceph-common ceph-mgr-modules-core python3-rados
python3-prettytable python3-numpy dash coreutils util-linux mount libc-bin'
for package in $roots; do
    dpkg-query -W "$package" > /dev/null 2>&1 || fail "$package is not installed"
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck disable=SC2086  # several names
apt-cache depends --recurse --installed --no-recommends --no-suggests --no-conflicts --no-breaks \
    --no-replaces --no-enhances $roots | grep '^[a-z]' | sort -u > "$work/closure"
dpkg-query -W -f '${Package}\n' | sort -u | comm -12 - "$work/closure" > "$work/packages"

# What the packages contain, except documentation, and what their scripts have made: the cache of
# the dynamic loader, the links of alternatives. /bin is a link to /usr/bin.
xargs dpkg -L < "$work/packages" | sed -E 's,^/(bin|sbin|lib|lib64)/,/usr/\1/,' | sort -u |
    grep -vE '^/usr/share/(doc|man|locale|info|lintian)/|^/(\.)?$|^/(bin|sbin|lib|lib64)$' |
    while read -r path; do
        if [ -L "$path" ] || [ -f "$path" ]; then echo "$path"; fi
    done > "$work/files"
find /usr/bin /usr/lib /etc/alternatives -type l \( -lname '/etc/alternatives/*' \
    -o -path '/etc/alternatives/*' \) >> "$work/files"
for path in /bin /sbin /lib /lib64 /etc/ld.so.cache /etc/passwd /etc/group /etc/nsswitch.conf; do
    [ ! -e "$path" ] || echo "$path" >> "$work/files"
done

root=$work/root
mkdir -p "$root/proc" "$root/dev" "$root/root" "$root/run" "$root/tmp" "$root/etc" \
    "$root/perfguard"
sort -u "$work/files" | sed 's,^/,,' | tar -C / -cf - --no-recursion -T - | tar -C "$root" -xf -
echo '127.0.0.1 localhost' > "$root/etc/hosts"
git archive HEAD src qa | tar -C "$root/perfguard" -xf -
cat > "$root/expand" <<'EOF'
#!/bin/sh
# The bench of expansions of perfguard, in a chroot and with namespaces of its own: all its
# processes end with it.
set -eu
[ "$(id -u)" = 0 ] || { echo 'expand: must be run as root' >&2; exit 1; }
root=$(cd "$(dirname "$0")" && pwd)
exec unshare --mount --pid --fork --kill-child sh -c '
    root=$1; shift
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    exec chroot "$root" /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin \
        HOME=/root LANG=C.UTF-8 PYTHONDONTWRITEBYTECODE=1 \
        PYTHONPATH=/perfguard/src/pybind/mgr:/perfguard \
        /usr/bin/python3 -m qa.bench.expansion "$@"' sh "$root" "$@"
EOF
chmod +x "$root/expand"
tar -C "$root" -czf "$archive" .
echo "$archive: $(($(wc -c < "$archive") >> 20)) MiB with $(ceph --version)"
