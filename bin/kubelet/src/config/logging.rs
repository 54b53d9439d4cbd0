//! The log's format and verbosity (`LoggingConfiguration` of component-base).

use serde_json::Value as Json;

use super::duration::GoDuration;
use super::error::FieldError;
use super::quantity::Quantity;
use super::section::{FieldValue, section};

section! {
    /// The log.
    pub struct LoggingConfiguration {
        /// `text` or `json`.
        "format" format: String = Value("text".to_owned()), Used;
        /// Longest time before a log line is written; this kubelet never holds lines back.
        "flushFrequency" flush_frequency: FlushFrequency = Always(FlushFrequency::default()), Used;
        /// Lines up to this V level are written.
        "verbosity" verbosity: u32 = Always(0), Used;
        /// Other V levels for some source files.
        "vmodule" vmodule: Vec<VModuleItem> = Value(Vec::new()), Used;
        /// Options of the formats, all of them behind the gate LoggingAlphaOptions.
        "options" options: FormatOptions = Value(FormatOptions::default()), NotYet;
    }
}

section! {
    /// A V level for some source files.
    pub struct VModuleItem {
        /// A file's name without directory and extension; `*` and `?` match as in a shell.
        "filePattern" file_pattern: String = Always(String::new()), Used;
        /// Lines of these files up to this V level are written.
        "verbosity" verbosity: u32 = Always(0), Used;
    }
}

section! {
    /// Options by format.
    pub struct FormatOptions {
        /// For `text`.
        "text" text: OutputRoutingOptions = Value(OutputRoutingOptions::default()), NotYet;
        /// For `json`.
        "json" json: OutputRoutingOptions = Value(OutputRoutingOptions::default()), NotYet;
    }
}

section! {
    /// Where lines go.
    pub struct OutputRoutingOptions {
        /// Whether informational lines go to standard output.
        "splitStream" split_stream: bool = Value(false), NotYet;
        /// Buffer of the informational stream, a quantity of bytes.
        "infoBufferSize" info_buffer_size: Quantity = Value(Quantity::zero()), NotYet;
    }
}

/// A duration that older files write as nanoseconds; it is printed the way it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlushFrequency {
    /// The duration itself.
    pub duration: GoDuration,
    /// Whether it is printed as Go's text instead of nanoseconds.
    pub as_text: bool,
}

impl Default for FlushFrequency {
    fn default() -> Self {
        Self { duration: GoDuration::from_secs(5), as_text: true }
    }
}

impl FieldValue for FlushFrequency {
    fn decode(json: Json, path: &str, errors: &mut Vec<FieldError>) -> Option<Self> {
        match json.as_i64() {
            Some(nanoseconds) => Some(Self { duration: GoDuration::from_nanos(nanoseconds), as_text: false }),
            None => GoDuration::decode(json, path, errors).map(|duration| Self { duration, as_text: true }),
        }
    }

    fn encode(&self) -> Json {
        if self.as_text { self.duration.encode() } else { Json::from(self.duration.as_nanos()) }
    }

    fn is_zero(&self) -> bool {
        self.duration.is_zero()
    }

    fn omitted(&self) -> bool {
        false
    }
}
