//! Wall time and randomness, from one place: with a fake clock a whole node replays from its seed.

#[cfg(any(test, feature = "fake"))]
mod fake;
#[cfg(test)]
mod tests;

#[cfg(any(test, feature = "fake"))]
pub use fake::FakeClock;

/// Wall time, random numbers and generated names.
///
/// Nothing here blocks or fails. Durations are measured with `tokio::time`, never by subtracting wall times.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// The wall time. It can jump in both directions: the administrator may set it.
    fn now(&self) -> jiff::Timestamp;

    /// 64 random bits.
    fn random_u64(&self) -> u64;

    /// A random UUID of version 4, lower case with dashes.
    fn uuid(&self) -> String {
        uuid_v4(self.random_u64(), self.random_u64())
    }
}

/// The machine's own clock and the kernel's random numbers.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> jiff::Timestamp {
        jiff::Timestamp::now()
    }

    fn random_u64(&self) -> u64 {
        let mut bytes = [0u8; 8];
        let mut filled = 0;
        while filled < bytes.len() {
            match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
                Ok(count) => filled += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    panic!("getrandom(2) without flags only fails on a kernel before 3.17: {error}")
                }
            }
        }
        u64::from_ne_bytes(bytes)
    }
}

fn uuid_v4(high: u64, low: u64) -> String {
    let high = (high & !0xf000) | 0x4000;
    let low = (low & !(0b11 << 62)) | (0b10 << 62);
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    )
}
