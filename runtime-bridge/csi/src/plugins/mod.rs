//! Plugins that register with the kubelet: CSI drivers, device plugins and DRA drivers.
//!
//! A plugin shows a socket below `plugins_registry`. [`PluginWatcher`] finds it, asks it what it is, and offers it to the
//! subsystem that follows plugins of its kind; what that subsystem answers is told to the plugin. A plugin that fails is
//! asked again with a back-off, one that makes its socket anew is registered anew, and one whose socket goes is gone.
//!
//! [`Registrations`](registrations::Registrations) decides all of that and has no effects.

mod metrics;
mod registrar;
pub mod registrations;
mod sockets;
mod watcher;

pub use metrics::PluginMetrics;
pub use registrar::{Registrar, RegistrarClient};
pub use registrations::{Identity, PluginFacts, PluginKind, Sockets};
pub use sockets::{PluginSockets, SocketDirectory};
pub use watcher::{PluginGone, PluginNews, PluginOffer, PluginWatcher, Plugins};
