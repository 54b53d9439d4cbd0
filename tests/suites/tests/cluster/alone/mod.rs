//! Cases that stop or kill their kubelet, or count its requests, and so need a kubelet of their own.

mod certificates;
mod counts;
mod ends;
mod evictions;
mod judged;
mod registration;
mod strangers;

use crate::Alone;

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
