//! `--help`.

use std::fmt::Write;

use super::{FlagRow, defaults, rows};
use crate::config::FeatureGates;

const LONG: &str = "The kubelet is the primary \"node agent\" that runs on each node: it makes the containers of the \
pods that
it is given run, and keeps them running and healthy.

This kubelet builds every subsystem as a supervised actor. Pods come from static manifests: a directory or file
(staticPodPath in the configuration file), looked at every 20s and whenever it changes.

Usage:
  kubelet [flags]

Flags:
";

/// The text of `--help`: every flag with its type, purpose, default and, where it applies, its deprecation.
pub fn help_text() -> String {
    let rows = rows();
    let names: Vec<String> = rows.iter().map(|row| left_column(row)).collect();
    let width = names.iter().map(String::len).max().unwrap_or(0);
    let settings = defaults();
    let mut text = LONG.to_owned();
    for (row, name) in rows.iter().zip(names) {
        let default = match (row.name, row.type_name, row.value(&settings).as_str()) {
            // Parallel pulls that are not configured have no value to show.
            ("serialize-image-pulls", ..) => " (default false, at most 5 in flight)".to_owned(),
            (_, _, "" | "false" | "0" | "0s" | "[]") => String::new(),
            (_, "string", value) => format!(" (default {value:?})"),
            (_, _, value) => format!(" (default {value})"),
        };
        let deprecated = row.deprecated.map(|note| format!(" (DEPRECATED: {note})")).unwrap_or_default();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name:width$}   {}{default}{deprecated}", row.usage);
        if row.name == "feature-gates" {
            for line in FeatureGates::help_lines() {
                let _ = writeln!(text, "{:width$}   {line}", "");
            }
        }
    }
    text
}

fn left_column(row: &FlagRow) -> String {
    let mut column = match row.shorthand {
        Some(letter) => format!("  -{letter}, --{}", row.name),
        None => format!("      --{}", row.name),
    };
    if !row.type_name.is_empty() {
        column.push(' ');
        column.push_str(row.type_name);
    }
    if let (Some(value), "version") = (row.without_value, row.type_name) {
        column.push_str(&format!("[={value}]"));
    }
    column
}
