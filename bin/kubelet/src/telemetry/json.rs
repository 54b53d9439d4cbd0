//! Log lines in component-base's JSON.

use jiff::Zoned;
use serde_json::Value as Json;
use tracing::{Level, Metadata};

use super::fields::{Fields, Rendered};

/// One line with its line feed. `level` is the event's V level; errors have none.
pub(super) fn line(
    now: &Zoned,
    metadata: &Metadata<'_>,
    level: u32,
    event: &Fields,
    around: &[Fields],
) -> String {
    let microseconds = now.timestamp().as_microsecond();
    let (milliseconds, rest) = (microseconds.div_euclid(1000), microseconds.rem_euclid(1000));
    let file = metadata.file().unwrap_or("???");
    let caller = format!("{}:{}", short(file), metadata.line().unwrap_or(1));
    let mut line = format!(
        "{{\"ts\":{milliseconds}.{rest:03},\"caller\":{},\"msg\":{}",
        text(&caller),
        text(&event.message)
    );
    if *metadata.level() != Level::ERROR {
        line.push_str(&format!(",\"v\":{level}"));
    }
    for (key, value) in around.iter().chain([event]).flat_map(|fields| &fields.pairs) {
        let value = match value {
            Rendered::Bare(bare) => bare.clone(),
            Rendered::Text(words) => text(words),
        };
        line.push_str(&format!(",{}:{value}", text(key)));
    }
    line.push_str("}\n");
    line
}

/// A file's name with its parent directory.
fn short(file: &str) -> &str {
    file.rmatch_indices('/').nth(1).map_or(file, |(at, _)| &file[at + 1..])
}

fn text(words: &str) -> String {
    Json::from(words).to_string()
}
