//! PURE: how the server reads what clients and containers write: queries, paths, headers and lines of logs. Nothing here has an
//! effect, so that any bytes can be tried.

pub use crate::access::{Attributes, PresentedCredentials, attributes, is_plain, namespace, take_token};
pub use crate::log_query::LogQuery;
pub use crate::logs::{Format, Line, LogOptions, More, Refused, Writer, format_of, log_options, parse};
pub use crate::streaming::{Streams, ports, query_pairs};
pub use crate::system_logs::{Asked, part};
