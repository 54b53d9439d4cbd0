//! The fake's version, status and configuration.

use std::sync::Arc;

use super::node::Node;
use crate::error::{CriError, CriErrorKind};
use crate::operations::KUBELET_API_VERSION;
use crate::rpc::Rpc;
use crate::wire::*;

/// The error of a gRPC server that does not have the method.
pub(super) fn unimplemented(rpc: Rpc) -> CriError {
    CriError::new(rpc, CriErrorKind::Unimplemented, format!("unknown method {rpc}"))
}

impl Node {
    pub(super) async fn version(self: Arc<Self>, _: VersionRequest) -> Result<VersionResponse, CriError> {
        Ok(VersionResponse {
            version: KUBELET_API_VERSION.to_owned(),
            runtime_name: "fake".to_owned(),
            runtime_version: "1.0.0".to_owned(),
            runtime_api_version: "v1".to_owned(),
        })
    }

    pub(super) async fn status(self: Arc<Self>, _: StatusRequest) -> Result<StatusResponse, CriError> {
        Ok(self.update(|state| StatusResponse {
            status: Some(RuntimeStatus { conditions: state.conditions.clone() }),
            runtime_handlers: state.handlers.clone(),
            features: Some(RuntimeFeatures {
                supplemental_groups_policy: true,
                user_namespaces_host_network: false,
            }),
            ..Default::default()
        }))
    }

    pub(super) async fn runtime_config(
        self: Arc<Self>,
        _: RuntimeConfigRequest,
    ) -> Result<RuntimeConfigResponse, CriError> {
        let driver = self.update(|state| state.cgroup_driver);
        let driver = driver.ok_or_else(|| unimplemented(Rpc::RuntimeConfig))?;
        Ok(RuntimeConfigResponse { linux: Some(LinuxRuntimeConfiguration { cgroup_driver: driver.into() }) })
    }

    pub(super) async fn update_runtime_config(
        self: Arc<Self>,
        _: UpdateRuntimeConfigRequest,
    ) -> Result<UpdateRuntimeConfigResponse, CriError> {
        Ok(UpdateRuntimeConfigResponse {})
    }
}
