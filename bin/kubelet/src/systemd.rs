//! Notifications to systemd, and the interval at which it expects them (row 23.6).

use std::time::Duration;

use anyhow::{Context, bail};
pub use sd_notify::NotifyState;

/// The shortest time-out of a watchdog that is accepted.
const TIMEOUT_MIN: Duration = Duration::from_secs(1);

/// Notifies systemd; does nothing if systemd did not start the process.
pub fn notify(states: &[NotifyState]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "systemd cannot be told");
    }
}

/// The interval between signs of life; `None` when systemd expects none from this process.
///
/// # Errors
/// The unit's `WatchdogSec` cannot be parsed, or is too short.
pub fn watchdog_interval() -> anyhow::Result<Option<Duration>> {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    interval(&variable("WATCHDOG_USEC"), &variable("WATCHDOG_PID"), std::process::id())
        .context("create health checker")
}

fn interval(timeout_us: &str, pid: &str, own_pid: u32) -> anyhow::Result<Option<Duration>> {
    if timeout_us.is_empty() {
        return Ok(None);
    }
    let number = timeout_us.parse::<u64>().ok().filter(|number| *number > 0);
    let Some(number) = number else {
        bail!("configure watchdog: WATCHDOG_USEC must be a positive number, not {timeout_us:?}");
    };
    if !pid.is_empty() {
        let Ok(pid) = pid.parse::<u32>() else {
            bail!("configure watchdog: WATCHDOG_PID must be a process ID, not {pid:?}");
        };
        if pid != own_pid {
            return Ok(None);
        }
    }
    let timeout = Duration::from_micros(number);
    if timeout <= TIMEOUT_MIN {
        bail!("configure watchdog timeout too small: {timeout:?}");
    }
    Ok(Some(timeout / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_the_time_that_systemd_waits() {
        assert_eq!(interval("", "7", 7).unwrap(), None);
        assert_eq!(interval("10000000", "7", 7).unwrap(), Some(Duration::from_secs(5)));
        assert_eq!(interval("10000000", "", 7).unwrap(), Some(Duration::from_secs(5)));
        assert_eq!(interval("10000000", "8", 7).unwrap(), None, "it waits for another process");
    }

    #[test]
    fn a_watchdog_that_cannot_be_fed_is_refused() {
        for (timeout_us, pid, words) in [
            ("500000", "7", "configure watchdog timeout too small: 500ms"),
            ("1000000", "7", "configure watchdog timeout too small: 1s"),
            ("0", "7", "WATCHDOG_USEC"),
            ("soon", "7", "WATCHDOG_USEC must be a positive number, not \"soon\""),
            ("10000000", "me", "WATCHDOG_PID must be a process ID, not \"me\""),
        ] {
            let error = interval(timeout_us, pid, 7).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
