//! The whole node in a sandbox, on fake bridges: the life of pods, and every actor failing on every message.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "tests may look at real time and randomly seeded maps"
)]

mod admission;
mod api;
mod api_outages;
mod blame;
mod calls;
mod certificates;
mod cgroups;
mod claims;
mod clock;
mod cluster;
mod credential_providers;
mod csi;
mod csi_block;
mod csi_doubt;
mod csi_expand;
mod csi_nodes;
mod csi_selinux;
mod csi_shared;
mod desired;
mod disk_expand;
mod evictions;
mod fibre_channel;
mod flex;
mod garbage;
mod gates;
mod hangs;
mod heartbeat;
mod hooks;
mod image_volumes;
mod images;
mod iscsi;
mod levels;
mod life;
mod limits;
mod listening;
mod logs;
mod long_lists;
mod manifests;
mod matrix;
mod member;
mod metrics;
mod mishaps;
mod names;
mod nfs;
mod numbers;
mod objects;
mod observed;
mod others;
mod pods;
mod private_images;
mod probes;
mod refused;
mod replay;
mod restarts;
mod status;
mod storage_limits;
mod strain;
mod strangers;
mod submissions;
mod traces;
mod tree;
mod unsupported;
mod usage;
mod volumes;
mod waiting;
