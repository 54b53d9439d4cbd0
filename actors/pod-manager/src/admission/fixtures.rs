//! Pods and nodes for the tests.

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use pod_spec::quantity::Quantity;
use pod_spec::resources::NodeResources;

/// A pod whose only container requests these amounts.
pub(crate) fn requesting(amounts: &[(&str, &str)]) -> Pod {
    let requests =
        amounts.iter().map(|(name, text)| ((*name).to_owned(), Text((*text).to_owned()))).collect();
    let resources = ResourceRequirements { requests: Some(requests), ..ResourceRequirements::default() };
    let container = Container { name: "main".to_owned(), resources: Some(resources), ..Container::default() };
    let spec = PodSpec { containers: vec![container], ..PodSpec::default() };
    Pod { spec: Some(spec), ..Pod::default() }
}

pub(crate) fn annotated(mut pod: Pod, key: &str, value: &str) -> Pod {
    pod.metadata.annotations.get_or_insert_default().insert(key.to_owned(), value.to_owned());
    pod
}

pub(crate) fn with_priority(mut pod: Pod, priority: i32) -> Pod {
    pod.spec.get_or_insert_default().priority = Some(priority);
    pod
}

/// A node with these amounts allocatable to pods.
pub(crate) fn node_resources(allocatable: &[(&str, &str)]) -> NodeResources {
    let parse = |text: &str| Quantity::parse(text).expect("a quantity");
    let allocatable = allocatable.iter().map(|(name, text)| ((*name).to_owned(), parse(text))).collect();
    NodeResources { allocatable, ..NodeResources::default() }
}
