//! PURE: the CSINode, and what the Node says of drivers.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::storage::v1::{CSINode, CSINodeDriver, CSINodeSpec, VolumeNodeResources};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use pod_rules::go_json;
use pod_rules::label_syntax::{label_value_errors, qualified_name_errors};
use pod_rules::labels::is_for_node;

use super::access::go_quoted;
use super::migrated;

/// The annotation of a Node with the node's name in each driver's world, as a JSON object.
pub const NODE_IDS: &str = "csi.volume.kubernetes.io/nodeid";

/// What a driver tells of this node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeInfo {
    /// The node's name in the driver's world.
    pub node_id: String,
    /// How many volumes may be attached; 0: no limit is told.
    pub volumes_max: i64,
    /// The node's place in the driver's topology.
    pub topology: BTreeMap<String, String>,
}

/// The CSINode of a Node before any driver is there.
#[must_use]
pub fn new(node: &str, node_uid: &str) -> CSINode {
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: node.to_owned(),
        uid: node_uid.to_owned(),
        ..Default::default()
    };
    let annotations = BTreeMap::from([(migrated::ANNOTATION.to_owned(), migrated::annotation())]);
    let metadata = ObjectMeta {
        name: Some(node.to_owned()),
        owner_references: Some(vec![owner]),
        annotations: Some(annotations),
        ..Default::default()
    };
    CSINode { metadata, spec: CSINodeSpec { drivers: Vec::new() } }
}

/// Whether a CSINode is of this Node, and not of an earlier one of its name: such a one is deleted and made anew.
#[must_use]
pub fn is_of(csi_node: &CSINode, node: &str, node_uid: &str) -> bool {
    let mut owners = csi_node.metadata.owner_references.iter().flatten();
    owners.any(|owner| owner.kind == "Node" && owner.name == node && owner.uid == node_uid)
}

/// The CSINode with the annotation of migrated plugins; `None` if it is there.
#[must_use]
pub fn annotated(csi_node: &CSINode) -> Option<CSINode> {
    let names = |text: &str| {
        let names = text.split(',').filter(|name| !name.is_empty()).map(str::to_owned);
        names.collect::<BTreeSet<_>>()
    };
    let told = csi_node.metadata.annotations.as_ref().and_then(|all| all.get(migrated::ANNOTATION));
    let wanted = migrated::annotation();
    if told.is_some_and(|told| names(told) == names(&wanted)) {
        return None;
    }
    let mut changed = csi_node.clone();
    changed.metadata.annotations.get_or_insert_default().insert(migrated::ANNOTATION.to_owned(), wanted);
    Some(changed)
}

/// The CSINode with a driver as it tells of this node; `None` if that is what it says already.
///
/// # Errors
/// Upstream's message when the driver does not tell the node's name.
pub fn with_driver(csi_node: &CSINode, driver: &str, info: &NodeInfo) -> Result<Option<CSINode>, String> {
    if info.node_id.is_empty() {
        return Err("error adding CSI driver node info: driverNodeID must not be empty".to_owned());
    }
    let annotated = annotated(csi_node);
    let is_changed = annotated.is_some();
    let mut changed = annotated.unwrap_or_else(|| csi_node.clone());
    // A count below 0 is no limit. One that the object cannot hold is cut.
    let count = (info.volumes_max > 0).then(|| i32::try_from(info.volumes_max).unwrap_or(i32::MAX));
    let entry = CSINodeDriver {
        name: driver.to_owned(),
        node_id: info.node_id.clone(),
        topology_keys: (!info.topology.is_empty()).then(|| info.topology.keys().cloned().collect()),
        allocatable: count.map(|count| VolumeNodeResources { count: Some(count) }),
    };
    let told = changed.spec.drivers.iter().find(|told| told.name == driver);
    if !is_changed && told.is_some_and(|told| says(told) == says(&entry)) {
        return Ok(None);
    }
    changed.spec.drivers.retain(|told| told.name != driver);
    changed.spec.drivers.push(entry);
    Ok(Some(changed))
}

/// What an entry says, whatever the order of its keys.
fn says(entry: &CSINodeDriver) -> (&str, BTreeSet<&str>, Option<i32>) {
    let keys = entry.topology_keys.iter().flatten().map(String::as_str).collect();
    (&entry.node_id, keys, entry.allocatable.as_ref().and_then(|allocatable| allocatable.count))
}

/// The CSINode without a driver; `None` if it does not name the driver.
#[must_use]
pub fn without_driver(csi_node: &CSINode, driver: &str) -> Option<CSINode> {
    let mut changed = csi_node.clone();
    changed.spec.drivers.retain(|told| told.name != driver);
    (changed.spec.drivers.len() != csi_node.spec.drivers.len()).then_some(changed)
}

/// The value of [`NODE_IDS`] with the node's name for a driver, `None`: without this driver. `Ok(None)`: the annotation
/// goes.
///
/// # Errors
/// A message when the present value is no JSON object of texts.
pub fn node_ids(
    present: Option<&str>,
    driver: &str,
    node_id: Option<&str>,
) -> Result<Option<String>, String> {
    let text = present.unwrap_or_default();
    let parsed = if text.is_empty() { Ok(BTreeMap::new()) } else { serde_json::from_str(text) };
    let mut ids: BTreeMap<String, String> = parsed.map_err(|error| {
        format!(
            "failed to parse node's {} annotation value ({}) err={error}",
            go_quoted(NODE_IDS),
            go_quoted(text)
        )
    })?;
    match node_id {
        Some(id) => drop(ids.insert(driver.to_owned(), id.to_owned())),
        None => drop(ids.remove(driver)),
    }
    let entry = |(name, id): (&String, &String)| format!("{}:{}", go_json::string(name), go_json::string(id));
    Ok((!ids.is_empty()).then(|| format!("{{{}}}", ids.iter().map(entry).collect::<Vec<_>>().join(","))))
}

/// The labels of the Node that a driver's topology adds.
///
/// # Errors
/// Upstream's message when the Node has a label with another value, and the reason why the API server would refuse a label:
/// nothing of the Node could be written with it.
pub fn topology_labels(
    labels: &BTreeMap<String, String>,
    topology: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, String> {
    for (key, value) in topology {
        if let Some(present) = labels.get(key).filter(|present| *present != value) {
            let [key, value, present] = [key, value, present].map(|text| go_quoted(text));
            return Err(format!(
                "detected topology value collision: driver reported {key}:{value} but existing label is {key}:{present}"
            ));
        }
    }
    for (key, value) in topology {
        let mut errors = qualified_name_errors(key);
        errors.extend(label_value_errors(value));
        if !labels.contains_key(key) && !is_for_node(key) {
            errors.push("a kubelet may not set this label on its Node".to_owned());
        }
        if !errors.is_empty() {
            let [key, value] = [key, value].map(|text| go_quoted(text));
            return Err(format!("invalid topology label {key}:{value}: {}", errors.join(", ")));
        }
    }
    let missing = topology.iter().filter(|(key, _)| !labels.contains_key(*key));
    Ok(missing.map(|(key, value)| (key.clone(), value.clone())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(max: i64, zones: &[&str]) -> NodeInfo {
        let topology = zones.iter().map(|zone| ((*zone).to_owned(), "a".to_owned())).collect();
        NodeInfo { node_id: "i-1".into(), volumes_max: max, topology }
    }

    #[test]
    fn a_driver_is_told_once_and_again_when_it_says_something_else() {
        let node = new("node-1", "uid-1");
        assert!(is_of(&node, "node-1", "uid-1") && !is_of(&node, "node-1", "uid-2"));
        let first = with_driver(&node, "d", &info(5, &["zone", "rack"])).unwrap().expect("it is new");
        let entry = &first.spec.drivers[0];
        assert_eq!((entry.name.as_str(), entry.node_id.as_str()), ("d", "i-1"));
        assert_eq!(entry.topology_keys.as_deref(), Some(&["rack".to_owned(), "zone".to_owned()][..]));
        assert_eq!(with_driver(&first, "d", &info(5, &["rack", "zone"])).unwrap(), None);
        let count = |max: i64| {
            let changed =
                with_driver(&first, "d", &info(max, &["rack", "zone"])).unwrap().expect("it changed");
            assert_eq!(changed.spec.drivers.len(), 1);
            changed.spec.drivers[0].allocatable.as_ref().and_then(|allocatable| allocatable.count)
        };
        assert_eq!([count(6), count(0), count(-1), count(1 << 40)], [Some(6), None, None, Some(i32::MAX)]);
        assert!(with_driver(&first, "d", &NodeInfo::default()).unwrap_err().contains("must not be empty"));
        let second = with_driver(&first, "e", &info(0, &[])).unwrap().expect("it is new");
        assert_eq!(
            without_driver(&second, "d").map(|left| left.spec.drivers[0].name.clone()).as_deref(),
            Some("e")
        );
        assert_eq!(without_driver(&second, "x"), None);
    }

    #[test]
    fn a_csi_node_lists_the_migrated_plugins() {
        let mut node = new("node-1", "uid-1");
        assert_eq!(annotated(&node), None);
        let reversed = migrated::annotation().split(',').rev().collect::<Vec<_>>().join(",");
        node.metadata.annotations = Some([(migrated::ANNOTATION.to_owned(), reversed)].into());
        assert_eq!(annotated(&node), None, "the order does not matter");
        node.metadata.annotations = None;
        let changed = with_driver(&node, "d", &info(0, &[])).unwrap().expect("it lacks the annotation");
        assert_eq!(changed.metadata.annotations.unwrap()[migrated::ANNOTATION], migrated::annotation());
    }

    #[test]
    fn the_node_names_itself_for_each_driver() {
        let one = node_ids(None, "d", Some("i-1")).unwrap().unwrap();
        assert_eq!(one, r#"{"d":"i-1"}"#);
        let two = node_ids(Some(&one), "a", Some("x&y")).unwrap().unwrap();
        assert_eq!(two, r#"{"a":"x\u0026y","d":"i-1"}"#);
        assert_eq!(node_ids(Some(&two), "a", None).unwrap(), Some(one.clone()));
        assert_eq!(node_ids(Some(&one), "d", None), Ok(None));
        assert!(node_ids(Some("{"), "d", None).unwrap_err().starts_with("failed to parse node's"));
    }

    #[test]
    fn topology_that_no_label_can_say_is_refused() {
        let refused = |key: &str, value: &str| {
            let topology = [(key.to_owned(), value.to_owned())].into();
            topology_labels(&BTreeMap::new(), &topology)
                .map_err(|why| why.starts_with("invalid topology label"))
        };
        for (key, value) in [("zone", "a b"), ("a/b/c", "x"), ("rack", &"x".repeat(64)), ("k8s.io/zone", "a")]
        {
            assert_eq!(refused(key, value), Err(true), "{key}");
        }
        assert!(
            refused("topology.kubernetes.io/zone", "a").is_ok() && refused("d.example/zone", "a").is_ok()
        );
    }

    #[test]
    fn topology_that_contradicts_the_node_is_refused() {
        let map = |pairs: &[(&str, &str)]| {
            pairs
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect::<BTreeMap<_, _>>()
        };
        let labels = map(&[("zone", "a")]);
        assert_eq!(
            topology_labels(&labels, &map(&[("zone", "a"), ("rack", "1")])),
            Ok(map(&[("rack", "1")]))
        );
        assert_eq!(
            topology_labels(&labels, &map(&[("zone", "b")])),
            Err("detected topology value collision: driver reported \"zone\":\"b\" but existing label is \
                 \"zone\":\"a\""
                .to_owned())
        );
    }
}
