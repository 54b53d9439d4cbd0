//! PURE: measured values and their quantiles.

use serde::Serialize;

/// Measured values of one thing, in the order in which they were measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// Adds one value.
    pub fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// Adds the values of another run.
    pub fn extend(&mut self, other: &Samples) {
        self.0.extend(&other.0);
    }

    /// The value that `share` (0 to 1) of the values do not exceed: the nearest rank, always a measured value. `None`
    /// without values.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        // Nearest rank; a float's cast saturates, so nothing is out of bounds.
        let rank = (share * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied()
    }

    /// The median.
    #[must_use]
    pub fn p50(&self) -> Option<f64> {
        self.quantile(0.5)
    }

    /// The 99th percentile, which is the largest of fewer than a hundred values.
    #[must_use]
    pub fn p99(&self) -> Option<f64> {
        self.quantile(0.99)
    }

    /// The mean; `None` without values.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.0.iter().sum::<f64>() / self.0.len() as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(values: &[f64]) -> Samples {
        Samples(values.to_vec())
    }

    #[test]
    fn quantiles_are_measured_values() {
        let of_four = samples(&[4.0, 1.0, 3.0, 2.0]);
        assert_eq!((of_four.p50(), of_four.p99()), (Some(2.0), Some(4.0)));
        assert_eq!((of_four.quantile(0.0), of_four.quantile(1.0)), (Some(1.0), Some(4.0)));
        assert_eq!(of_four.mean(), Some(2.5));
        let of_one = samples(&[7.0]);
        assert_eq!((of_one.p50(), of_one.p99()), (Some(7.0), Some(7.0)));
    }

    #[test]
    fn nothing_measured_has_no_quantile() {
        assert_eq!((samples(&[]).p50(), samples(&[]).p99(), samples(&[]).mean()), (None, None, None));
    }
}
