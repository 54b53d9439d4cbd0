//! Recording sinks: addresses that keep the messages they are told.

use std::sync::{Arc, Mutex};

use messages::Delivery;
use supervision::Address;

/// The messages that a recording address was told, oldest first.
#[derive(Clone)]
pub struct Recorder<M>(Arc<Mutex<Vec<M>>>);

impl<M: Clone> Recorder<M> {
    /// All messages so far.
    pub fn all(&self) -> Vec<M> {
        self.0.lock().expect("no test panics while it holds the lock").clone()
    }

    /// All messages since the last call.
    pub fn take(&self) -> Vec<M> {
        std::mem::take(&mut *self.0.lock().expect("no test panics while it holds the lock"))
    }

    /// The newest message.
    pub fn last(&self) -> Option<M> {
        self.0.lock().expect("no test panics while it holds the lock").last().cloned()
    }
}

/// An address, and the record of its messages.
pub fn recorder<M: Delivery>() -> (Address<M>, Recorder<M>) {
    let record = Arc::new(Mutex::new(Vec::new()));
    let sink = record.clone();
    let address = Address::sink("recorder", move |message| {
        sink.lock().expect("no test panics while it holds the lock").push(message);
    });
    (address, Recorder(record))
}
