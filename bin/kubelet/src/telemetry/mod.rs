//! The log, in the form of klog.
//!
//! Text lines are `I1121 01:30:59.123456   12345 actor.rs:42] "message" key="value"`, JSON lines those of
//! component-base (`ts` in milliseconds, `caller`, `msg`, `v`, then the keys). Both go to standard error; if it is
//! closed, lines are lost without other effects, and one that takes nothing holds up only the thread that writes them.
//!
//! # Verbosity
//! | tracing | klog | written from |
//! |---|---|---|
//! | `error!` | E | always |
//! | `warn!` | W | always |
//! | `info!` | I, V(0) | always |
//! | `debug!` | I, V(4) | `-v 4` |
//! | `trace!` | I, V(6) | `-v 6` |
//!
//! An event's own field `v` raises its level: `info!(v = 2, …)` is written from `-v 2`. Events of the libraries
//! that speak HTTP and TLS need `-v 8` below a warning. The fields of the spans around an event are printed
//! with it.
//!
//! `--vmodule pattern=N` raises the verbosity for source files if the pattern matches the file's name without
//! extension, or a part of its module path (the crate's name, for example).

mod fields;
mod json;
mod layer;
mod text;
mod verbosity;
mod writer;

use tracing_subscriber::layer::{Layer as _, SubscriberExt};
use tracing_subscriber::registry::{LookupSpan, Registry};

pub use self::layer::KlogLayer;
pub use self::verbosity::Verbosity;
pub use self::writer::flush;

use crate::config::ConfigError;
use crate::config::logging::LoggingConfiguration;

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// klog's text.
    Text,
    /// component-base's JSON.
    Json,
}

/// The log that `config` describes, as a layer to combine with others, and its verbosity, which can be changed later.
///
/// # Errors
/// The thread that writes the log cannot be started.
pub fn layer<S>(
    config: &LoggingConfiguration,
) -> std::io::Result<(impl tracing_subscriber::Layer<S> + Send + Sync, Verbosity)>
where
    S: tracing::Subscriber + for<'span> LookupSpan<'span>,
{
    let format = if config.format == "json" { Format::Json } else { Format::Text };
    let verbosity = Verbosity::new(config.verbosity, &config.vmodule);
    Ok((KlogLayer::to_stderr(format, verbosity.clone())?.with_filter(verbosity.clone()), verbosity))
}

/// Installs the log of `config` as the log of the process.
///
/// # Errors
/// The process already has one, or the thread that writes it cannot be started.
pub fn init(config: &LoggingConfiguration) -> Result<Verbosity, ConfigError> {
    let (layer, verbosity) = layer(config).map_err(|error| ConfigError::Logging(error.to_string()))?;
    tracing::subscriber::set_global_default(Registry::default().with(layer))
        .map_err(|error| ConfigError::Logging(error.to_string()))?;
    Ok(verbosity)
}
