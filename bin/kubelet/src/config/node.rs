//! The Node object, its status and lease, the event budget, and the client to the API server.

use super::duration::GoDuration;
use super::section::section;

section! {
    /// How the node presents itself to the API server.
    pub struct NodeConfiguration {
        /// Events sent per second at most; 0 for no limit.
        "eventRecordQPS" event_record_qps: i32 = Pointer(50), Used;
        /// Events that may be sent at once above the rate.
        "eventBurst" event_burst: i32 = Value(100), Used;
        /// Time between two computations of the node status.
        "nodeStatusUpdateFrequency" node_status_update_frequency: GoDuration =
            Value(GoDuration::from_secs(10)), Used;
        /// Longest time between two postings of an unchanged node status.
        "nodeStatusReportFrequency" node_status_report_frequency: GoDuration =
            Value(GoDuration::from_mins(5)), Used;
        /// Life of the node's lease, in seconds.
        "nodeLeaseDurationSeconds" node_lease_duration_seconds: i32 = Value(40), Used;
        /// Images listed in the node status; -1 for all.
        "nodeStatusMaxImages" node_status_max_images: i32 = Pointer(50), Used;
        /// Media type of requests to the API server.
        "contentType" content_type: String = Value("application/vnd.kubernetes.protobuf".to_owned()), NotYetByDefault;
        /// Requests to the API server per second.
        "kubeAPIQPS" kube_api_qps: i32 = Pointer(50), Used;
        /// Requests that may be made at once above the rate.
        "kubeAPIBurst" kube_api_burst: i32 = Value(100), Used;
        /// The node's identity at its cloud provider.
        "providerID" provider_id: String = Value(String::new()), Used;
        /// Taints that the node registers with.
        "registerWithTaints" register_with_taints: Vec<Taint> = Value(Vec::new()), Used;
        /// Whether the node registers itself.
        "registerNode" register_node: bool = Pointer(true), Used;
        /// Whether the controller manager, not the kubelet, attaches volumes.
        "enableControllerAttachDetach" enable_controller_attach_detach: bool = Pointer(true), DefaultAlone;
        /// Directory of FlexVolume plugins.
        "volumePluginDir" volume_plugin_dir: String =
            Value("/usr/libexec/kubernetes/kubelet-plugins/volume/exec/".to_owned()), Used;
        /// Time between two measurements of the volumes' disk usage; negative disables them.
        "volumeStatsAggPeriod" volume_stats_agg_period: GoDuration = Value(GoDuration::from_mins(1)), Used;
        /// Where OpenTelemetry spans go; absent for none.
        "tracing" tracing: Option<TracingConfiguration> = Value(None), Used;
    }
}

section! {
    /// A taint, as in a Node's spec.
    pub struct Taint {
        /// The taint's key, a qualified name.
        "key" key: String = Always(String::new()), Used;
        /// The taint's value, a label value.
        "value" value: String = Value(String::new()), Used;
        /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
        "effect" effect: String = Always(String::new()), Used;
        /// Refused in the configuration: only the API server sets it.
        "timeAdded" time_added: Option<String> = Value(None), NotYet;
    }
}

section! {
    /// OpenTelemetry export.
    pub struct TracingConfiguration {
        /// gRPC address of the collector; absent for localhost:4317.
        "endpoint" endpoint: Option<String> = Value(None), Used;
        /// Pods of every million that are told; absent, as 0, for none, since callers' traces are not followed.
        "samplingRatePerMillion" sampling_rate_per_million: Option<i32> = Value(None), Used;
    }
}
