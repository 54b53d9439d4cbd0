//! The registration of CSI drivers (row 10.16): a driver is registered when it has told of the node and the cluster knows it.

use std::time::Duration;

use bridge_csi::plugins::PluginFacts;
use bridge_csi::rules::csi_node as rules;
use bridge_csi::rules::policy::DriverPolicy;
use bridge_csi::{Candidate, NodeInfo, RegisterError};
use bridge_pace::Backoff;
use futures::stream::{self, StreamExt};
use k8s_openapi::api::core::v1::Node;
use messages::facts::DriverNode;
use tokio::time::{sleep, timeout};

use crate::backends::Backends;
use crate::csi_node;
use crate::devices::Turn;

/// How long a registration waits for the Node after a start of the kubelet.
const NODE_WITHIN: Duration = Duration::from_secs(30);
/// How long a registration waits for the Node, its turn at the CSINode and the API server.
const TOLD_WITHIN: Duration = Duration::from_secs(90);
/// The delays before a driver that is gone is taken out of the CSINode again.
const FORGOTTEN: Backoff = Backoff::doubling(Duration::from_millis(500), Duration::from_secs(30));
/// How often that is tried, before a later sweep tries it again. A driver that registers again is named anew, whatever the
/// CSINode says.
const FORGOTTEN_TRIES: u32 = 8;
/// How many drivers are asked at once.
const ASKED_AT_ONCE: usize = 16;
/// The turn of work on the CSINode.
const CSI_NODE: &str = "CSINode";
/// How long work for a driver waits for work for others: a call of theirs may hang for half a minute. After that the object's
/// version keeps the order: work that loses a race is done anew.
const TURN_WITHIN: Duration = Duration::from_secs(2);

/// Why a driver is not registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// What it says of itself is refused.
    Invalid(String),
    /// It may be registered later.
    Failed(String),
}

/// Registers a driver.
///
/// # Errors
/// [`Refusal`]; the driver is not registered then.
pub(crate) async fn register(
    backends: Backends,
    facts: PluginFacts,
    socket: String,
) -> Result<DriverNode, Refusal> {
    let PluginFacts { name, endpoint, versions, .. } = facts;
    let candidate = Candidate { name: name.clone(), endpoint, versions, socket: socket.clone() };
    let info = backends.csi.registry.register(candidate).await.map_err(|error| match error {
        RegisterError::Refused(why) => Refusal::Invalid(why),
        RegisterError::NodeInfo(error) => Refusal::Failed(error.status_text()),
    })?;
    let told = timeout(TOLD_WITHIN, tell_cluster(&backends, &name, &info)).await;
    if let Err(why) = told.unwrap_or_else(|_| Err("the API server was not told in time".to_owned())) {
        backends.csi.registry.deregister(&name, &socket);
        return Err(Refusal::Failed(why));
    }
    Ok(DriverNode { node_id: info.node_id, topology: info.topology })
}

/// The turn of work on the CSINode, which is waited for a short time, and before that the turn of the driver, if it is for one:
/// what is said of one driver is said in the order in which it became so.
async fn turn(backends: &Backends, driver: Option<&str>) -> (Option<Turn>, Option<Turn>) {
    let own = match driver {
        Some(driver) => Some(backends.devices.turn(&format!("{CSI_NODE}/{driver}")).await),
        None => None,
    };
    (own, timeout(TURN_WITHIN, backends.devices.turn(CSI_NODE)).await.ok())
}

async fn tell_cluster(backends: &Backends, driver: &str, info: &NodeInfo) -> Result<(), String> {
    let Some(csi_nodes) = &backends.csi.csi_nodes else { return Ok(()) };
    let node = backends.attachments.node(NODE_WITHIN).await.ok_or("the Node is not known")?;
    let labels = node.metadata.labels.clone().unwrap_or_default();
    rules::topology_labels(&labels, &info.topology)?;
    let _turn = turn(backends, Some(driver)).await;
    csi_node::change(csi_nodes.as_ref(), &node, &|present| rules::with_driver(present, driver, info)).await
}

/// How often the driver wants to be asked again how many volumes the node takes, by its CSIDriver; with `ask` it is asked now,
/// if it wants that at all.
pub(crate) async fn capacity(backends: Backends, driver: String, ask: bool) -> Option<Duration> {
    let object = backends.volume_objects.as_ref()?.csi_driver(&driver).await;
    let object = match object {
        Ok(object) => object,
        Err(error) if error.is_not_found() => return None,
        Err(error) => {
            tracing::warn!(driver, %error, "How often a CSI driver is asked for its capacity is not known");
            return None;
        }
    };
    let period = DriverPolicy::of(Some(&object)).update_period?;
    if ask {
        refresh(&backends, &driver).await;
    }
    Some(period)
}

/// Asks the driver how many volumes the node takes, and tells the CSINode.
pub(crate) async fn refresh(backends: &Backends, driver: &str) {
    let told = async {
        let info = backends.csi.registry.node_info(driver).await.map_err(|error| error.status_text())?;
        tell_cluster(backends, driver, &info).await
    };
    if let Err(error) = told.await {
        tracing::warn!(driver, error, "Failed to update CSIDriver");
    }
}

/// Names drivers in a CSINode that was made without them.
pub(crate) async fn tell_again(backends: Backends, drivers: Vec<String>) {
    let backends = &backends;
    let asked = stream::iter(drivers).map(async |driver| refresh(backends, &driver).await);
    asked.buffered(ASKED_AT_ONCE).collect::<()>().await;
}

/// Takes a driver that is gone out of the CSINode, with a few tries.
///
/// # Errors
/// The API server's last answer: a later sweep tries it again.
pub(crate) async fn forget(backends: Backends, driver: String) -> Result<(), String> {
    let mut delay = FORGOTTEN.first();
    for _ in 1..FORGOTTEN_TRIES {
        match forget_once(&backends, &driver).await {
            Ok(()) => return Ok(()),
            Err(error) => tracing::debug!(driver, error, "The CSINode still names a CSI driver that is gone"),
        }
        sleep(delay).await;
        delay = FORGOTTEN.following(delay);
    }
    forget_once(&backends, &driver).await
}

async fn forget_once(backends: &Backends, driver: &str) -> Result<(), String> {
    let Some(csi_nodes) = &backends.csi.csi_nodes else {
        backends.attachments.driver_is_settled(driver);
        return Ok(());
    };
    let node = backends.attachments.node(NODE_WITHIN).await.ok_or("the Node is not known")?;
    let _turn = turn(backends, Some(driver)).await;
    // It may have come back meanwhile.
    if !is_registered(backends, driver) {
        csi_node::change(csi_nodes.as_ref(), &node, &|present| Ok(rules::without_driver(present, driver)))
            .await?;
    }
    backends.attachments.driver_is_settled(driver);
    Ok(())
}

/// Whether a driver of this name is registered, from whatever socket.
pub(crate) fn is_registered(backends: &Backends, driver: &str) -> bool {
    backends.csi.registry.registered().iter().any(|known| known.name == driver)
}

/// Makes the CSINode of a Node, before any driver is there.
///
/// # Errors
/// The API server's answer.
pub(crate) async fn introduce(backends: Backends, node: std::sync::Arc<Node>) -> Result<(), String> {
    let Some(csi_nodes) = &backends.csi.csi_nodes else { return Ok(()) };
    let _turn = turn(&backends, None).await;
    csi_node::change(csi_nodes.as_ref(), &node, &|_| Ok(None)).await
}
