//! `/containerLogs` (row 21.6): what was asked for, which instance has it, and reading its file.

mod instance;
mod line;
mod options;
mod read;

pub use instance::{has_container, has_terminal, instance};
pub use options::log_options;
pub use read::{LogSource, send};
