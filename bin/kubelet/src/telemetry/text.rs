//! Log lines in klog's text format.

use jiff::Zoned;
use tracing::{Level, Metadata};

use super::fields::{Fields, Rendered};
use crate::config::validation::quoted;

/// One line with its line feed.
pub(super) fn line(
    now: &Zoned,
    pid: u32,
    metadata: &Metadata<'_>,
    event: &Fields,
    around: &[Fields],
) -> String {
    let severity = match *metadata.level() {
        Level::ERROR => 'E',
        Level::WARN => 'W',
        _ => 'I',
    };
    let file = metadata.file().and_then(|file| file.rsplit('/').next()).unwrap_or("???");
    let time = now.strftime("%m%d %H:%M:%S%.6f");
    let mut line = format!(
        "{severity}{time} {pid:>7} {file}:{}] {}",
        metadata.line().unwrap_or(1),
        quoted(&event.message)
    );
    for (key, value) in around.iter().chain([event]).flat_map(|fields| &fields.pairs) {
        push_pair(&mut line, key, value);
    }
    line.push('\n');
    line
}

fn push_pair(line: &mut String, key: &str, value: &Rendered) {
    line.push(' ');
    line.push_str(key);
    line.push('=');
    match value {
        Rendered::Bare(text) => line.push_str(text),
        Rendered::Text(text) if text.contains('\n') => {
            // klog prints a text of several lines indented between angle brackets.
            line.push_str("<\n");
            for part in text.strip_suffix('\n').unwrap_or(text).split('\n') {
                line.push('\t');
                line.push_str(part);
                line.push('\n');
            }
            line.push_str(" >");
        }
        Rendered::Text(text) => line.push_str(&quoted(text)),
    }
}
