// SPDX-License-Identifier: LGPL-2.1-or-later
// What a site may change: import mixin.libsonnet and add to _config.
{
  _config+:: {
    // Which time series the dashboard shows.
    matchers: 'cluster=~"$cluster",job=~"$job"',
    // The same for those that Ceph itself exports, which may have another job.
    ceph_matchers: 'cluster=~"$cluster"',
    // The manual, of which each alert names a section: as the packages install it. For pages that
    // Sphinx has built, set your address and '.html'.
    manual: 'file:///usr/share/doc/ceph-mgr-perfguard/perfguard/',
    manual_suffix: '.rst',
  },
}
