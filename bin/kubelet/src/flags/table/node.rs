//! Flags of the node, its events, the API client and volumes.

use super::super::FlagRow;
use super::super::kind::{Bool, Duration, Int32, Labels, Str};
use super::super::node_kind::Taints;
use super::{config_flag, process_flag};

pub(super) const ROWS: &[FlagRow] = &[
    process_flag!(
        "hostname-override",
        Str,
        hostname_override,
        Used,
        "Name of the node instead of the machine's"
    ),
    process_flag!(
        "node-ip",
        Str,
        node_ip,
        Used,
        "Address of the node, or two of both families, comma-separated"
    ),
    process_flag!(
        "node-labels",
        Labels,
        node_labels,
        Used,
        "Labels that the node registers with, as key=value, comma-separated"
    ),
    process_flag!(
        "cloud-provider",
        Str,
        cloud_provider,
        Used,
        "external for a node of an external cloud provider, else empty"
    ),
    config_flag!(
        "provider-id",
        None,
        Str,
        node.provider_id,
        "providerID",
        None,
        "The node's identity at its cloud provider"
    ),
    config_flag!(
        "event-qps",
        Int32,
        node.event_record_qps,
        "eventRecordQPS",
        "Events sent per second at most"
    ),
    config_flag!(
        "event-burst",
        Int32,
        node.event_burst,
        "eventBurst",
        "Events that may be sent at once above --event-qps"
    ),
    config_flag!(
        "node-status-update-frequency",
        Duration,
        node.node_status_update_frequency,
        "nodeStatusUpdateFrequency",
        "Time between two computations of the node status"
    ),
    config_flag!(
        "node-status-max-images",
        Int32,
        node.node_status_max_images,
        "nodeStatusMaxImages",
        "Images listed in the node status; -1 for all"
    ),
    config_flag!(
        "kube-api-content-type",
        Str,
        node.content_type,
        "contentType",
        "Media type of requests to the API server"
    ),
    config_flag!(
        "kube-api-qps",
        Int32,
        node.kube_api_qps,
        "kubeAPIQPS",
        "Requests to the API server per second"
    ),
    config_flag!(
        "kube-api-burst",
        Int32,
        node.kube_api_burst,
        "kubeAPIBurst",
        "Requests that may be made at once above --kube-api-qps"
    ),
    config_flag!(
        "register-node",
        Bool,
        node.register_node,
        "registerNode",
        "Register the node at the API server"
    ),
    config_flag!(
        "register-with-taints",
        Taints,
        node.register_with_taints,
        "registerWithTaints",
        "Taints that the node registers with, as key=value:effect, comma-separated"
    ),
    config_flag!(
        "enable-controller-attach-detach",
        Bool,
        node.enable_controller_attach_detach,
        "enableControllerAttachDetach",
        "Leave attaching volumes to the controller manager"
    ),
    config_flag!(
        "volume-plugin-dir",
        Str,
        node.volume_plugin_dir,
        "volumePluginDir",
        "Directory of FlexVolume plugins"
    ),
    config_flag!(
        "volume-stats-agg-period",
        Duration,
        node.volume_stats_agg_period,
        "volumeStatsAggPeriod",
        "Time between two measurements of the volumes' disk usage; negative disables them"
    ),
];
