//! `/containerLogs` (row 21.6): the query, the instance that has the log, and reading the log's file.

mod instance;
mod line;
mod options;
mod read;

pub use instance::{has_container, has_terminal, instance};
pub use line::{Format, Line, More, Writer, format_of, parse};
pub use options::{LogOptions, Refused, log_options};
pub use read::{LogSource, send};
