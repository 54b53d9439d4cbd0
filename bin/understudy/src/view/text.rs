//! PURE: text as it stands in columns: padded, and times as short as they can be.

pub use pod_why::text::{fitted, harmless, neutralised, width};

/// The alignment of a cell's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// To the left, for names.
    Left,
    /// To the right, for numbers.
    Right,
}

/// The text in exactly `room` columns.
pub fn padded(text: &str, room: usize, align: Align) -> String {
    let text = fitted(text, room);
    let space = " ".repeat(room.saturating_sub(width(&text)));
    match align {
        Align::Left => text + &space,
        Align::Right => space + &text,
    }
}

/// A time span in its two largest units. A negative span (of a clock that is behind) is 0s.
pub fn span(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let two = |large: i64, unit: &str, small: i64, small_unit: &str| match small {
        0 => format!("{large}{unit}"),
        _ => format!("{large}{unit}{small}{small_unit}"),
    };
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 => two(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, "d", hours % 24, "h"),
        _ => format!("{days}d"),
    }
}

/// A time in microseconds, printed with at most three digits.
pub fn latency(micros: u64) -> String {
    match micros {
        0 => "-".to_owned(),
        1..1000 => format!("{micros}µs"),
        1000..1_000_000 => format!("{}ms", micros / 1000),
        _ => format!("{}s", micros / 1_000_000),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn wide_characters_are_not_cut_in_half() {
        assert_eq!(padded("日本語", 4, Align::Left), "日… ");
        assert_eq!(padded("7", 3, Align::Right), "  7");
    }

    #[test]
    fn spans_and_latencies_are_short() {
        for (seconds, text) in [
            (-5, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (185, "3m5s"),
            (3600, "60m"),
            (11_000, "3h3m"),
            (90_000, "25h"),
            (180_000, "2d2h"),
            (864_000, "10d"),
        ] {
            assert_eq!(span(seconds), text);
        }
        assert_eq!([0, 512, 2048, 3_000_000].map(latency), ["-", "512µs", "2ms", "3s"]);
    }

    proptest! {
        #[test]
        fn padded_text_is_as_wide_as_its_room(text in any::<String>(), room in 0usize..40) {
            prop_assert_eq!(width(&padded(&neutralised(&text), room, Align::Left)), room);
        }
    }
}
