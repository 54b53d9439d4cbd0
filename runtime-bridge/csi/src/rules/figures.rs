//! PURE: the size and the health of a volume, as its driver tells of it.

use crate::wire::NodeGetVolumeStatsResponse;
use crate::wire::volume_usage::Unit;

/// The health of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Whether something is wrong with it.
    pub is_abnormal: bool,
    /// The driver's words, for people.
    pub message: String,
}

/// The size and the health of a volume; figures that the driver does not tell are 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Bytes that can still be written.
    pub available_bytes: i64,
    /// Bytes in all.
    pub capacity_bytes: i64,
    /// Bytes that are taken.
    pub used_bytes: i64,
    /// Inodes that are free.
    pub inodes_free: i64,
    /// Inodes in all.
    pub inodes: i64,
    /// Inodes that are taken.
    pub inodes_used: i64,
    /// Its health, of drivers that tell of it.
    pub health: Option<Health>,
}

/// A driver that tells neither of size nor of health.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("failed to get usage from response. usage is nil")]
pub struct NoFigures;

impl Figures {
    /// What an answer tells. `with_health`: the driver tells of health, and need tell of no size then.
    ///
    /// # Errors
    /// [`NoFigures`].
    pub fn of(told: &NodeGetVolumeStatsResponse, with_health: bool) -> Result<Self, NoFigures> {
        if told.usage.is_empty() && !with_health {
            return Err(NoFigures);
        }
        let condition = told.volume_condition.clone().unwrap_or_default();
        let health = Health { is_abnormal: condition.abnormal, message: condition.message };
        let mut figures = Self { health: with_health.then_some(health), ..Self::default() };
        for usage in &told.usage {
            match usage.unit() {
                Unit::Bytes => {
                    figures.available_bytes = usage.available;
                    figures.capacity_bytes = usage.total;
                    figures.used_bytes = usage.used;
                }
                Unit::Inodes => {
                    figures.inodes_free = usage.available;
                    figures.inodes = usage.total;
                    figures.inodes_used = usage.used;
                }
                Unit::Unknown => {}
            }
        }
        Ok(figures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{VolumeCondition, VolumeUsage};

    #[test]
    fn figures_are_taken_by_unit_and_health_from_drivers_that_tell_it() {
        let usage =
            |unit: Unit, available, total, used| VolumeUsage { available, total, used, unit: unit.into() };
        let told = NodeGetVolumeStatsResponse {
            usage: vec![
                usage(Unit::Inodes, 1, 2, 3),
                usage(Unit::Unknown, 9, 9, 9),
                usage(Unit::Bytes, 4, 5, 6),
            ],
            volume_condition: Some(VolumeCondition { abnormal: true, message: "worn".into() }),
        };
        let figures = Figures::of(&told, false).unwrap();
        assert_eq!((figures.available_bytes, figures.capacity_bytes, figures.used_bytes), (4, 5, 6));
        assert_eq!((figures.inodes_free, figures.inodes, figures.inodes_used), (1, 2, 3));
        assert_eq!(figures.health, None);
        let health = Figures::of(&told, true).unwrap().health.unwrap();
        assert_eq!((health.is_abnormal, health.message.as_str()), (true, "worn"));
        let nothing = NodeGetVolumeStatsResponse::default();
        assert_eq!(Figures::of(&nothing, false), Err(NoFigures));
        assert_eq!(Figures::of(&nothing, true).unwrap().health, Some(Health::default()));
    }
}
