//! Volumes that another kubelet has set up by plugins that this kubelet does not have: they are reported as
//! in use, and left as they are, since an unmount behind the plugin's back loses data.

use bridge_node::host::{OtherVolume, Reported};
use messages::facts::OtherVolumesObserved;
use messages::volume_manager::VolumeError;

/// The message about these volumes for the watchers.
pub fn observed(found: &[OtherVolume]) -> OtherVolumesObserved {
    let names = found.iter().filter_map(|volume| match &volume.reported {
        Reported::As(name) => Some(name.clone()),
        Reported::Never | Reported::Unknown => None,
    });
    let unknown = found.iter().filter(|volume| volume.reported == Reported::Unknown);
    OtherVolumesObserved {
        names: std::sync::Arc::new(names.collect()),
        plugins: std::sync::Arc::new(unknown.map(|volume| volume.plugin.clone()).collect()),
    }
}

/// The refusal to undo a pod's volumes, if one of them belongs to another kubelet's plugin.
pub fn refusal(found: &[OtherVolume]) -> Option<VolumeError> {
    let OtherVolume { name, plugin, .. } = found.first()?;
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
            reported,
        };
        let found = [
            volume("kubernetes.io/csi", "a", Reported::As("kubernetes.io/csi/d^1".to_owned())),
            volume("kubernetes.io/csi", "b", Reported::Never),
            volume("kubernetes.io/fc", "c", Reported::Unknown),
        ];
        let told = observed(&found);
        assert_eq!(*told.names, BTreeSet::from(["kubernetes.io/csi/d^1".to_owned()]));
        assert_eq!(*told.plugins, BTreeSet::from(["kubernetes.io/fc".to_owned()]));
        assert_eq!(refusal(&found).map(|error| error.volume).as_deref(), Some("a"));
        assert_eq!(refusal(&[]), None);
    }
}
