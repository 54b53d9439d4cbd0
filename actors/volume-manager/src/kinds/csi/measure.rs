//! What a volume of a driver holds, as the driver tells it (row 10.27).

use std::path::Path;

use bridge_csi::rules::figures::Figures;
use bridge_csi::rules::says;
use bridge_csi::wire::NodeGetVolumeStatsRequest;
use messages::volume_manager::{VolumeCondition, VolumeUsage};

use super::super::block;
use super::device::Device;
use super::notes;
use crate::backends::Backends;
use crate::kinds::Measured;
use crate::steps::SetUpError;

/// Asks the driver about the volume that is shown at `target`: of a block device the link in the pod's directory.
pub(super) async fn measure(backends: &Backends, target: &Path) -> Result<Measured, SetUpError> {
    let refused = |text: String| SetUpError::Refused(says(&text));
    let (data, shown) = if block::is_link(target) {
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let uid = target.iter().nth_back(3).unwrap_or_default();
        let device = Device::of(backends.node(), &name)?;
        (notes::read(backends, &device.note).await?, device.maps.join(uid))
    } else {
        (notes::beside(backends, target).await?, target.to_path_buf())
    };
    let Some(data) = data else {
        return Err(refused(format!("no volume is noted at {}", target.display())));
    };
    let able = backends.csi.volumes.capabilities(data.driver()).await;
    let able = able.map_err(|error| refused(error.status_text()))?;
    if !able.volume_stats {
        return Err(refused(format!(
            "{} does not support volume metrics (not supported error)",
            data.driver()
        )));
    }
    let with_health = backends.csi.tells_health && able.volume_condition;
    let request = NodeGetVolumeStatsRequest {
        volume_id: data.volume_id().to_owned(),
        volume_path: shown.to_string_lossy().into_owned(),
        ..Default::default()
    };
    let told = backends.csi.figures.volume_figures(data.driver(), request, with_health).await;
    told.map(|told| usage(&told).into()).map_err(|error| refused(error.status_text()))
}

/// PURE: the driver's figures; those below 0 are none.
fn usage(told: &Figures) -> VolumeUsage {
    let figure = |figure: i64| u64::try_from(figure).unwrap_or_default();
    VolumeUsage {
        available_bytes: figure(told.available_bytes),
        capacity_bytes: figure(told.capacity_bytes),
        used_bytes: figure(told.used_bytes),
        inodes: figure(told.inodes),
        inodes_free: figure(told.inodes_free),
        inodes_used: figure(told.inodes_used),
        condition: told
            .health
            .as_ref()
            .map(|health| VolumeCondition { abnormal: health.is_abnormal, message: health.message.clone() }),
    }
}

#[cfg(test)]
mod tests {
    use bridge_csi::rules::figures::Health;

    use super::*;

    #[test]
    fn the_drivers_figures_and_its_word_on_the_volumes_health_are_told() {
        let health = Some(Health { is_abnormal: true, message: "worn".to_owned() });
        let told = Figures {
            available_bytes: 1,
            capacity_bytes: 3,
            used_bytes: 2,
            inodes: -1,
            health,
            ..Default::default()
        };
        let condition = Some(VolumeCondition { abnormal: true, message: "worn".to_owned() });
        let expected = VolumeUsage {
            available_bytes: 1,
            capacity_bytes: 3,
            used_bytes: 2,
            condition,
            ..VolumeUsage::default()
        };
        assert_eq!(usage(&told), expected);
    }
}
