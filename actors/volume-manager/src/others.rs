//! Volumes that are found in directories: those that are attached to nodes are reported as in use. Those that another kubelet
//! has set up by plugins that this kubelet does not have are left as they are, since an unmount behind the plugin's back loses
//! data.

use std::sync::Arc;

use bridge_node::host::{OtherVolume, Reported};
use messages::facts::OtherVolumesObserved;
use messages::volume_manager::VolumeError;
use pod_rules::volume_plugins::{ALL, CSI, is_flex_driver};

/// The message about these volumes for the watchers.
pub fn observed(found: &[OtherVolume]) -> OtherVolumesObserved {
    let names = found.iter().filter_map(|volume| match &volume.reported {
        Reported::As(name) => Some(name.clone()),
        Reported::Never | Reported::Unknown => None,
    });
    // Of the plugins of this kubelet only CSI and FlexVolume drivers have volumes that are attached to nodes.
    let is_attached = |plugin: &str| plugin == CSI || !ALL.contains(&plugin);
    let unknown =
        found.iter().filter(|volume| volume.reported == Reported::Unknown && is_attached(&volume.plugin));
    OtherVolumesObserved {
        names: Arc::new(names.collect()),
        plugins: Arc::new(unknown.map(|volume| volume.plugin.clone()).collect()),
        own: Arc::default(),
    }
}

/// The refusal to undo a pod's volumes, if one of them belongs to another kubelet's plugin.
pub fn refusal(found: &[OtherVolume]) -> Option<VolumeError> {
    let is_other = |plugin: &str| !ALL.contains(&plugin) && !is_flex_driver(plugin);
    let OtherVolume { name, plugin, .. } = found.iter().find(|volume| is_other(&volume.plugin))?;
    let message = format!(
        "volume {name:?} was set up through {plugin} by another kubelet, and stays until a kubelet with that plugin takes it down"
    );
    Some(VolumeError { volume: name.clone(), message })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn what_is_known_of_them_is_told_and_nothing_is_undone() {
        let volume = |plugin: &str, name: &str, reported| OtherVolume {
            pod: Some("u".to_owned()),
            plugin: plugin.to_owned(),
            name: name.to_owned(),
            is_block: false,
            reported,
        };
        let found = [
            volume("kubernetes.io/csi", "a", Reported::As("kubernetes.io/csi/d^1".to_owned())),
            volume("kubernetes.io/csi", "b", Reported::Never),
            volume("kubernetes.io/empty-dir", "e", Reported::Unknown),
            volume("vendor.example/disk", "c", Reported::Unknown),
            volume("kubernetes.io/other", "d", Reported::Unknown),
        ];
        let told = observed(&found);
        assert_eq!(*told.names, BTreeSet::from(["kubernetes.io/csi/d^1".to_owned()]));
        assert_eq!(
            *told.plugins,
            BTreeSet::from(["kubernetes.io/other".to_owned(), "vendor.example/disk".to_owned()])
        );
        assert_eq!(
            refusal(&found).map(|error| error.volume).as_deref(),
            Some("d"),
            "`c` is a FlexVolume driver's"
        );
        assert_eq!(refusal(&[]), None);
    }
}
