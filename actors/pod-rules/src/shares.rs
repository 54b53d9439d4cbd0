//! Conversions between Kubernetes' thousandths of a CPU and the kernel's shares and quotas (rows 14.3,
//! 14.18).

/// The fewest shares that the kernel takes; a cgroup without a CPU request gets these.
pub const SHARES_MIN: u64 = 2;
const SHARES_MAX: u64 = 262_144;
const SHARES_PER_CPU: i128 = 1024;
const MILLIS_PER_CPU: i128 = 1000;
/// The smallest quota that the kernel takes, in microseconds.
const QUOTA_US_MIN: i128 = 1000;

/// The CPU shares of cgroups version 1 for thousandths of a CPU.
pub fn shares(millis: i128) -> u64 {
    let shares = millis.max(0).saturating_mul(SHARES_PER_CPU) / MILLIS_PER_CPU;
    u64::try_from(shares).unwrap_or(SHARES_MAX).clamp(SHARES_MIN, SHARES_MAX)
}

/// The thousandths of a CPU that these shares stand for, rounded up; `None` below the fewest shares that the
/// kernel takes.
pub fn millis_of_shares(shares: i64) -> Option<i64> {
    let shares = u64::try_from(shares).ok().filter(|shares| *shares >= SHARES_MIN)?;
    let millis = (i128::from(shares) * MILLIS_PER_CPU + SHARES_PER_CPU - 1) / SHARES_PER_CPU;
    Some(i64::try_from(millis).unwrap_or(i64::MAX))
}

/// Microseconds of CPU time in each period for thousandths of a CPU; `None`, which means no limit, for zero
/// or less. The kernel counts microseconds as a signed 64-bit number.
pub fn quota_us(millis: i128, period_us: i64) -> Option<i64> {
    let quota = millis.saturating_mul(i128::from(period_us)) / MILLIS_PER_CPU;
    (millis > 0).then(|| i64::try_from(quota.max(QUOTA_US_MIN)).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_quotas_stay_within_what_the_kernel_takes() {
        for (millis, expected) in
            [(-1, 2), (0, 2), (1, 2), (100, 102), (1000, 1024), (256_001, 262_144), (i128::MAX, 262_144)]
        {
            assert_eq!(shares(millis), expected, "{millis}");
        }
        for (millis, expected) in
            [(-1, None), (0, None), (1, Some(1000)), (500, Some(50_000)), (i128::MAX, Some(i64::MAX))]
        {
            assert_eq!(quota_us(millis, 100_000), expected, "{millis}");
        }
    }

    #[test]
    fn shares_are_read_back_rounded_up() {
        for (shares, expected) in [(0, None), (1, None), (2, Some(2)), (102, Some(100)), (1024, Some(1000))] {
            assert_eq!(millis_of_shares(shares), expected, "{shares}");
        }
    }
}
