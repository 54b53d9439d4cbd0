//! Recording sinks: addresses that remember what they were told.

use std::sync::{Arc, Mutex};

use messages::Delivery;
use supervision::Address;

/// What a recording address was told, oldest first.
#[derive(Clone)]
pub struct Recorder<M>(Arc<Mutex<Vec<M>>>);

impl<M: Clone> Recorder<M> {
    /// Everything so far.
    pub fn all(&self) -> Vec<M> {
        self.0.lock().expect("no test panics while it holds the lock").clone()
    }

    /// Everything since the last call.
    pub fn take(&self) -> Vec<M> {
        std::mem::take(&mut *self.0.lock().expect("no test panics while it holds the lock"))
    }

    /// The newest.
    pub fn last(&self) -> Option<M> {
        self.0.lock().expect("no test panics while it holds the lock").last().cloned()
    }
}

/// An address and the record of what it is told.
pub fn recorder<M: Delivery>() -> (Address<M>, Recorder<M>) {
    let record = Arc::new(Mutex::new(Vec::new()));
    let sink = record.clone();
    let address = Address::sink("recorder", move |message| {
        sink.lock().expect("no test panics while it holds the lock").push(message);
    });
    (address, Recorder(record))
}
