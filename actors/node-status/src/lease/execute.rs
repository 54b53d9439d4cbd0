//! One round of renewing the lease.

use std::sync::Arc;

use bridge_io::clock::Clock;
use bridge_kube::{ApiError, Leases};
use k8s_openapi::api::coordination::v1::Lease as LeaseObject;

use super::LeaseConfig;
use super::plan::{NAMESPACE, renewed};
use crate::cadence::tries_max;

/// The result of a round.
#[derive(Debug)]
pub enum Round {
    /// The API server has this lease, renewed by this kubelet.
    Renewed(Box<LeaseObject>),
    /// There is no lease, and it cannot be created before the Node's UID is known.
    WithoutNode,
    /// There is a lease, and renewing it failed.
    NotRenewed(ApiError),
    /// It is unknown whether there is a lease.
    NotFound(ApiError),
}

/// The inputs of a round.
pub struct Renewal {
    pub api: Arc<dyn Leases>,
    pub clock: Arc<dyn Clock>,
    pub config: Arc<LeaseConfig>,
    /// The Node's UID.
    pub owner: Option<String>,
}

impl Renewal {
    fn lease(&self, before: Option<&LeaseObject>) -> LeaseObject {
        let config = &self.config;
        renewed(before, &config.node, self.owner.as_deref(), config.duration_seconds, self.clock.now())
    }

    /// Renews the lease that was seen last; if that fails, renews the one at the API server, or creates one if there is
    /// none.
    pub async fn round(self, latest: Option<LeaseObject>) -> Round {
        if let Some(latest) = latest
            && let Ok(lease) = self.replace(latest).await
        {
            return Round::Renewed(Box::new(lease));
        }
        match self.api.get(NAMESPACE, &self.config.node).await {
            Ok(lease) => match self.replace(lease).await {
                Ok(lease) => Round::Renewed(Box::new(lease)),
                Err(error) => Round::NotRenewed(error),
            },
            Err(error) if error.is_not_found() && self.owner.is_none() => Round::WithoutNode,
            Err(error) if error.is_not_found() => match self.api.create(&self.lease(None)).await {
                Ok(lease) => Round::Renewed(Box::new(lease)),
                Err(error) => Round::NotFound(error),
            },
            Err(error) => Round::NotFound(error),
        }
    }

    async fn replace(&self, mut base: LeaseObject) -> Result<LeaseObject, ApiError> {
        let mut tries = 1;
        loop {
            match self.api.replace(&self.lease(Some(&base))).await {
                Ok(lease) => return Ok(lease),
                Err(error) if error.is_not_found() => return Err(error),
                Err(error) => {
                    if tries > 1 && !error.is_conflict() {
                        // After two failures in a row the connection may be dead (row 20.1).
                        self.api.redial();
                    }
                    if tries >= tries_max(error.is_transient()) {
                        return Err(error);
                    }
                    tracing::warn!(%error, "Failed to update lease");
                    if error.is_conflict() {
                        base = self.api.get(NAMESPACE, &self.config.node).await?;
                    }
                }
            }
            tries += 1;
        }
    }
}
