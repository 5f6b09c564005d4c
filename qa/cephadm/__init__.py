# SPDX-License-Identifier: LGPL-2.1-or-later
"""A real cephadm cluster (Tentacle) on one machine without systemd, LVM or a container registry.

    python3 -m qa.cephadm build     once, for minutes and 2.3 GB: packages of Debian, and a cluster
    python3 -m qa.cephadm up        boots a copy of it: three mons, two mgrs, three OSDs
    python3 -m qa.cephadm ceph -- orch ps
    python3 -m qa.cephadm down

Three "hosts" run systemd in systemd-nspawn, and cephadm's containers in podman, from images that
are made of Debian's packages. One process, the keeper, has all of this in namespaces of its own:
mounts, processes and networks end with it in any case, and loop devices with their last user. What
could remain, empty cgroups, is removed by the sweeper, which only waits for the keeper's end.

There is no such rig with Reef: its modules cephadm and dashboard import cryptography and bcrypt,
and those of trixie refuse any but the first interpreter of a process ("PyO3 modules do not yet
support subinterpreters").
"""
from .rig import Rig

__all__ = ['Rig']
