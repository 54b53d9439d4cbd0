//! PURE: how long each call to a driver may take.

use std::time::Duration;

use crate::rpc::Rpc;

/// The deadlines of calls to CSI drivers; upstream's are fixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// The deadline of every call that concerns a volume, and of `NodeGetInfo`: upstream's `csiTimeout`.
    pub operation: Duration,
    /// The deadline of calls that are about the driver itself and read nothing from a disk or a network. Upstream counts
    /// them into the time of the operation that needs the answer.
    pub about: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self::new(Duration::from_secs(120))
    }
}

impl Deadlines {
    /// The deadlines that follow from that of an operation.
    #[must_use]
    pub fn new(operation: Duration) -> Self {
        Self { operation, about: operation.min(Duration::from_secs(30)) }
    }

    /// The deadline of an RPC.
    #[must_use]
    pub fn of(&self, rpc: Rpc) -> Duration {
        match rpc {
            Rpc::GetPluginInfo | Rpc::GetPluginCapabilities | Rpc::Probe | Rpc::NodeGetCapabilities => {
                self.about
            }
            _ => self.operation,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_have_upstreams_two_minutes() {
        let secs = |rpc| Deadlines::default().of(rpc).as_secs();
        let calls = [Rpc::NodeStageVolume, Rpc::NodeExpandVolume, Rpc::NodeGetVolumeStats, Rpc::NodeGetInfo];
        assert_eq!(calls.map(secs), [120; 4]);
        assert_eq!(secs(Rpc::NodeGetCapabilities), 30);
        assert_eq!(Deadlines::new(Duration::from_secs(2)).of(Rpc::Probe).as_secs(), 2);
    }
}
