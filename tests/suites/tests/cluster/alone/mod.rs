//! Cases that stop or kill their kubelet, or count its requests, and so need a kubelet of their own.

mod certificates;
mod claimed;
mod counts;
mod csi;
mod csi_block;
mod ends;
mod evictions;
mod hostpath;
mod judged;
mod local_disk;
mod registration;
mod strangers;

use crate::Alone;

/// Cases with kubernetes-csi's own driver, where it is on the machine.
pub const WITH_HOSTPATH: &[(&str, Alone)] = &[
    ("a_drivers_volume_is_shared_measured_and_outlives_driver_and_kubelet", hostpath::persistent),
    ("an_inline_volume_lives_as_long_as_its_pod", hostpath::inline),
];

/// Cases with persistent volumes.
pub const VOLUMES: &[(&str, Alone)] = &[
    ("a_drivers_volume_is_attached_shared_and_outlives_kubelets", csi::shared),
    ("a_volume_survives_kubelets_killed_at_each_step", csi::killed),
    ("a_block_device_is_given_to_pods_grows_and_outlives_kubelets", csi_block::shown),
    ("a_block_device_survives_kubelets_killed_at_each_step", csi_block::killed),
    ("an_inline_volume_lives_as_long_as_its_pod", csi::inline),
    ("a_disk_of_the_node_is_formatted_shared_and_outlives_kubelet_and_pods", local_disk::shared),
];

pub const ALL: &[(&str, Alone)] = &[
    ("a_restart_writes_no_status", counts::restart),
    ("an_idle_node_asks_for_little", counts::idle),
    ("an_end_that_others_write_is_final_after_a_restart", ends::written_by_others),
    ("a_pod_that_fills_the_disk_is_evicted", evictions::full_disk),
    ("pods_that_exceed_limits_of_local_storage_are_evicted", evictions::limits_of_local_storage),
    ("a_restart_judges_what_is_not_here_and_ends_nothing_that_is", judged::restart),
    ("a_node_registers_and_lives", registration::registers),
    ("a_node_that_was_deleted_registers_again", registration::deleted),
    ("random_tokens_of_strangers_delay_no_pod", strangers::random_tokens),
    ("a_first_certificate_is_asked_for_and_found_again", certificates::first),
    ("certificates_are_renewed_while_the_node_serves", certificates::rotating),
    ("a_killed_kubelet_leaves_a_whole_pair", certificates::killed),
    ("a_denied_request_ends_the_kubelet", certificates::refused),
    ("what_is_wrong_with_a_bootstrap_is_said", certificates::wrong),
];
