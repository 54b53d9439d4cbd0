//! The node's CSINode, which tells the cluster which drivers are registered here.

use std::time::Duration;

use bridge_csi::rules::csi_node;
use bridge_kube::{ApiError, CsiNodes, Delete};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::storage::v1::CSINode;

/// How often a change is made anew after another writer was faster, and the pause before that.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(50);

/// A change of the object; `None`: it says that already.
pub(crate) type Change<'a> = dyn Fn(&CSINode) -> Result<Option<CSINode>, String> + Send + Sync + 'a;

/// Makes the CSINode of this Node if it is missing, and changes it.
///
/// # Errors
/// The API server's answer, or why the object cannot be changed.
pub(crate) async fn change(csi_nodes: &dyn CsiNodes, node: &Node, change: &Change<'_>) -> Result<(), String> {
    let mut tried = 0;
    loop {
        tried += 1;
        match try_to_change(csi_nodes, node, change).await {
            Ok(()) => return Ok(()),
            Err(Trouble::Refused(why)) => return Err(why),
            Err(Trouble::Api(error)) => {
                let again = error.is_conflict() || error.is_already_exists() || error.is_not_found();
                if !again || tried >= TRIES {
                    return Err(format!("error updating CSINode: {error}"));
                }
                tokio::time::sleep(PAUSE * tried).await;
            }
        }
    }
}

enum Trouble {
    Refused(String),
    Api(ApiError),
}

impl From<ApiError> for Trouble {
    fn from(error: ApiError) -> Self {
        Self::Api(error)
    }
}

async fn try_to_change(csi_nodes: &dyn CsiNodes, node: &Node, change: &Change<'_>) -> Result<(), Trouble> {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (name, uid) = (text(&node.metadata.name), text(&node.metadata.uid));
    let present = match csi_nodes.get(&name).await {
        Ok(present) => Some(present),
        Err(error) if error.is_not_found() => None,
        Err(error) => return Err(error.into()),
    };
    let present = match present {
        Some(present) if !csi_node::is_of(&present, &name, &uid) => {
            // An earlier Node had this name.
            let how = Delete { grace_seconds: None, uid: present.metadata.uid.clone() };
            csi_nodes.delete(&name, &how).await?;
            None
        }
        present => present,
    };
    match present {
        Some(present) => {
            let annotated = csi_node::annotated(&present);
            let base = annotated.as_ref().unwrap_or(&present);
            if let Some(changed) = change(base).map_err(Trouble::Refused)?.or(annotated) {
                csi_nodes.replace(&changed).await?;
            }
        }
        None => {
            let new = csi_node::new(&name, &uid);
            let made = change(&new).map_err(Trouble::Refused)?.unwrap_or(new);
            csi_nodes.create(&made).await?;
        }
    }
    Ok(())
}
