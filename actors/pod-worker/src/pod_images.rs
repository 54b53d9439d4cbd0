//! PURE: the images that the containers of a pod need: their own, and those of the image volumes that they mount (row 6.8).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod};
use messages::image_manager::PullPolicy;

use crate::spec::ContainerKind;

/// An image that a pod needs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodImage {
    /// The image of the container of this name.
    Container(Arc<str>),
    /// The image of volumes: those with the same reference and policy share it.
    Volume {
        /// The image as the pod's spec spells it.
        reference: Arc<str>,
        /// When it is pulled.
        policy: PullPolicy,
    },
}

/// One image that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageNeed {
    /// Which image of the pod it is.
    pub image: PodImage,
    /// What needs it, for people: the container's name, or `volume/` and the name of the first volume with this image.
    pub needed_by: Arc<str>,
    /// The image as the pod's spec spells it.
    pub reference: Arc<str>,
    /// When it is pulled.
    pub policy: PullPolicy,
    /// The field path of events about it; empty for a volume's image, whose events are about the pod.
    pub field_path: String,
}

impl ImageNeed {
    /// The image of a container itself.
    pub fn of_container(kind: ContainerKind, container: &Container) -> Self {
        let name: Arc<str> = Arc::from(container.name.as_str());
        Self {
            image: PodImage::Container(name.clone()),
            needed_by: name,
            reference: Arc::from(container.image.as_deref().unwrap_or_default()),
            policy: policy(container.image_pull_policy.as_deref()),
            field_path: kind.field_path(&container.name),
        }
    }
}

fn policy(text: Option<&str>) -> PullPolicy {
    match text {
        Some("Always") => PullPolicy::Always,
        Some("Never") => PullPolicy::Never,
        _ => PullPolicy::IfNotPresent,
    }
}

/// The image volumes of a pod, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageVolumes(BTreeMap<String, ImageNeed>);

impl ImageVolumes {
    /// Those of this pod. Made once for all questions of a step.
    pub fn of(pod: &Pod) -> Self {
        let mut first: BTreeMap<PodImage, Arc<str>> = BTreeMap::new();
        let mut volumes = BTreeMap::new();
        for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
            let Some(source) = &volume.image else { continue };
            let reference: Arc<str> = Arc::from(source.reference.as_deref().unwrap_or_default());
            let policy = policy(source.pull_policy.as_deref());
            let image = PodImage::Volume { reference: reference.clone(), policy };
            let label = || Arc::from(format!("volume/{}", volume.name));
            let needed_by = first.entry(image.clone()).or_insert_with(label).clone();
            let need = ImageNeed { image, needed_by, reference, policy, field_path: String::new() };
            volumes.insert(volume.name.clone(), need);
        }
        Self(volumes)
    }

    /// Whether the volume of this name is an image.
    pub fn has(&self, volume: &str) -> bool {
        self.0.contains_key(volume)
    }

    /// The images of the volumes that the container mounts, each once, in the order of its mounts.
    pub fn mounted_by(&self, container: &Container) -> Vec<&ImageNeed> {
        let mut needs: Vec<&ImageNeed> = Vec::new();
        if self.0.is_empty() {
            return needs;
        }
        let mut seen = BTreeSet::new();
        for (_, need) in self.mounts_of(container) {
            if seen.insert(&need.image) {
                needs.push(need);
            }
        }
        needs
    }

    /// The image volumes that the container mounts, by name, with the image of each.
    pub fn mounts_of<'s, 'c>(
        &'s self,
        container: &'c Container,
    ) -> impl Iterator<Item = (&'c str, &'s ImageNeed)> {
        let mounts = container.volume_mounts.iter().flatten();
        mounts.filter_map(move |mount| Some((mount.name.as_str(), self.0.get(&mount.name)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{container, pod};

    fn mounting(names: &[&str]) -> Container {
        let mounts: Vec<_> = names
            .iter()
            .map(|name| serde_json::json!({"name": name, "mountPath": format!("/{name}")}))
            .collect();
        let mounts = serde_json::from_value(mounts.into()).expect("mounts");
        Container { volume_mounts: Some(mounts), ..container("c") }
    }

    fn volumes() -> ImageVolumes {
        let mut pod = pod("Always", vec![], vec![container("c")]);
        let volumes = serde_json::json!([
            {"name": "a", "image": {"reference": "r/x:1", "pullPolicy": "IfNotPresent"}},
            {"name": "files", "emptyDir": {}},
            {"name": "b", "image": {"reference": "r/x:1"}},
            {"name": "c", "image": {"reference": "r/x:1", "pullPolicy": "Always"}},
            {"name": "d", "image": {"reference": "r/y:1", "pullPolicy": "Never"}},
        ]);
        pod.spec.as_mut().expect("a spec").volumes = serde_json::from_value(volumes).expect("volumes");
        ImageVolumes::of(&pod)
    }

    #[test]
    fn volumes_with_one_image_and_policy_share_it() {
        let volumes = volumes();
        let container = mounting(&["d", "b", "files", "a", "b", "c"]);
        let needs = volumes.mounted_by(&container);
        let told: Vec<_> = needs
            .iter()
            .map(|need| (&*need.needed_by, &*need.reference, need.policy, &*need.field_path))
            .collect();
        let expected = [
            ("volume/d", "r/y:1", PullPolicy::Never, ""),
            ("volume/a", "r/x:1", PullPolicy::IfNotPresent, ""),
            ("volume/c", "r/x:1", PullPolicy::Always, ""),
        ];
        assert_eq!(told, expected);
        let mounts: Vec<_> = volumes.mounts_of(&container).map(|(name, _)| name).collect();
        assert_eq!(mounts, ["d", "b", "a", "b", "c"]);
        assert!(volumes.has("a") && !volumes.has("files") && !volumes.has("x"));
    }

    #[test]
    fn a_container_needs_the_images_of_the_volumes_that_it_mounts() {
        let volumes = volumes();
        assert!(volumes.mounted_by(&mounting(&["files", "x"])).is_empty());
        assert!(volumes.mounted_by(&container("c")).is_empty());
        let own = ImageNeed::of_container(ContainerKind::Sidecar, &container("a"));
        assert_eq!((&*own.needed_by, own.image), ("a", PodImage::Container("a".into())));
        assert_eq!(own.field_path, "spec.initContainers{a}");
    }
}
