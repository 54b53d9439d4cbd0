//! The messages that ConfigManager receives.

use std::sync::Arc;

use crate::{Key, delivery, receives};

/// Asks ConfigManager to read the configuration anew: the process was sent SIGHUP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReloadConfiguration;
delivery!(ReloadConfiguration => (): Command, LatestPerKey);

/// Asks for the configuration in force, as `/configz` shows it: the text of a JSON object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetConfiguration;
delivery!(GetConfiguration => Arc<str>: Query, Reject);

/// Asks ConfigManager to send the receiver's settings again, since the receiver has restarted with those of the process' start.
/// ConfigManager sends nothing as long as these are in force.
#[derive(Clone, Debug)]
pub struct ResendConfiguration {
    /// Its name in the supervision tree.
    pub receiver: &'static str,
}
delivery!(ResendConfiguration => (): Command, LatestPerKey, key = |m| Key::Receiver(m.receiver));

/// Settings of an actor that change while the kubelet runs. Writer: ConfigManager alone, so that newer ones take the place of
/// older ones in a mailbox, and none come out of order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Configured<S> {
    /// What holds from now on.
    pub settings: S,
}

receives!("ConfigManager": ReloadConfiguration, GetConfiguration, ResendConfiguration);
