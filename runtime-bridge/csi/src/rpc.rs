//! The table of RPCs of a CSI driver, a line each. The trait, the client, the fake and the server are made from it, so
//! that none of them can miss an RPC.

/// Calls the macro `$mac` with the whole table.
///
/// The word before a method says how it is called: `read` may be dropped half way, `mutate` runs to its deadline even
/// if its caller goes away.
#[macro_export]
macro_rules! for_each_rpc {
    ($mac:ident) => {
        $mac! {
            identity {
                read get_plugin_info(GetPluginInfoRequest) -> GetPluginInfoResponse = GetPluginInfo;
                read get_plugin_capabilities(GetPluginCapabilitiesRequest) -> GetPluginCapabilitiesResponse
                    = GetPluginCapabilities;
                read probe(ProbeRequest) -> ProbeResponse = Probe;
            }
            node {
                mutate node_stage_volume(NodeStageVolumeRequest) -> NodeStageVolumeResponse = NodeStageVolume;
                mutate node_unstage_volume(NodeUnstageVolumeRequest) -> NodeUnstageVolumeResponse
                    = NodeUnstageVolume;
                mutate node_publish_volume(NodePublishVolumeRequest) -> NodePublishVolumeResponse
                    = NodePublishVolume;
                mutate node_unpublish_volume(NodeUnpublishVolumeRequest) -> NodeUnpublishVolumeResponse
                    = NodeUnpublishVolume;
                read node_get_volume_stats(NodeGetVolumeStatsRequest) -> NodeGetVolumeStatsResponse
                    = NodeGetVolumeStats;
                mutate node_expand_volume(NodeExpandVolumeRequest) -> NodeExpandVolumeResponse
                    = NodeExpandVolume;
                read node_get_capabilities(NodeGetCapabilitiesRequest) -> NodeGetCapabilitiesResponse
                    = NodeGetCapabilities;
                read node_get_info(NodeGetInfoRequest) -> NodeGetInfoResponse = NodeGetInfo;
            }
        }
    };
}
pub(crate) use crate::for_each_rpc;

macro_rules! rpc_enum {
    ($($service:ident { $($kind:ident $method:ident($request:ident) -> $response:ident = $name:ident;)* })*) => {
        /// An RPC of the services Identity and Node.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[allow(missing_docs)]
        pub enum Rpc {
            $($($name,)*)*
        }

        impl Rpc {
            /// Every RPC, in the order of the table.
            pub const ALL: &'static [Rpc] = &[$($(Rpc::$name,)*)*];

            /// The name on the wire, for example `NodeStageVolume`.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $($(Rpc::$name => stringify!($name),)*)*
                }
            }

            /// The whole method as gRPC names it, which is the label `method_name` of upstream's metric.
            #[must_use]
            pub fn method(self) -> &'static str {
                match self {
                    $($(Rpc::$name => method!($service $name),)*)*
                }
            }
        }
    };
}
macro_rules! method {
    (identity $name:ident) => {
        concat!("/csi.v1.Identity/", stringify!($name))
    };
    (node $name:ident) => {
        concat!("/csi.v1.Node/", stringify!($name))
    };
}
for_each_rpc!(rpc_enum);

impl std::fmt::Display for Rpc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
