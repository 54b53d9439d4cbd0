//! Addresses without an actor behind them: the neighbours of an actor under test or benchmark.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use actix::dev::OneshotSender;
use messages::Delivery;

use crate::address::{Address, Post, Room};
use crate::ask::{AskPort, Asker};
use crate::mailbox::Refusal;

/// How often an asker tries again whether a full mailbox has room.
const LOOK_FOR_ROOM: Duration = Duration::from_millis(10);

/// What a scripted neighbour does with a message.
pub enum Received<M: Delivery> {
    /// The message is taken, and an asker gets this answer.
    Answered(M::Result),
    /// The message is taken, and an asker learns that the answer is lost.
    Lost,
    /// The message is taken, and an asker gets no answer before its deadline.
    Kept,
    /// The message is refused: the mailbox is full.
    Full(M),
}

impl<M: Delivery> Address<M> {
    /// An address whose messages go to a closure, which decides what becomes of each.
    pub fn scripted(name: &'static str, script: impl Fn(M) -> Received<M> + Send + Sync + 'static) -> Self {
        Self::new(Arc::new(Scripted { name, script, kept: Mutex::new(Vec::new()) }))
    }

    /// An address whose messages go to a closure; asks get no answer. For recording and counting.
    pub fn sink(name: &'static str, sink: impl Fn(M) + Send + Sync + 'static) -> Self {
        Self::scripted(name, move |message| {
            sink(message);
            Received::Lost
        })
    }
}

impl<From: Asker, M: Delivery> AskPort<From, M> {
    /// A port whose asks go to a closure, which decides what becomes of each.
    pub fn scripted(name: &'static str, script: impl Fn(M) -> Received<M> + Send + Sync + 'static) -> Self {
        Self::new(Arc::new(Scripted { name, script, kept: Mutex::new(Vec::new()) }))
    }

    /// A port whose asks are answered by a closure (`None`: the answer is lost).
    pub fn answering(
        name: &'static str,
        answer: impl Fn(M) -> Option<M::Result> + Send + Sync + 'static,
    ) -> Self {
        Self::scripted(name, move |message| answer(message).map_or(Received::Lost, Received::Answered))
    }
}

struct Scripted<M: Delivery, F> {
    name: &'static str,
    script: F,
    /// Askers of [`Received::Kept`]: their senders are kept so that no answer and no loss is reported.
    kept: Mutex<Vec<OneshotSender<M::Result>>>,
}

impl<M: Delivery, F: Fn(M) -> Received<M> + Send + Sync> Post<M> for Scripted<M, F> {
    fn post(&self, message: M, asker: Option<OneshotSender<M::Result>>) -> Result<(), (M, Refusal)> {
        match (self.script)(message) {
            Received::Answered(answer) => {
                let _asker_gone = asker.map(|asker| asker.send(answer));
            }
            Received::Lost => {}
            Received::Kept => {
                self.kept.lock().unwrap_or_else(PoisonError::into_inner).extend(asker);
            }
            Received::Full(message) => return Err((message, Refusal::Full)),
        }
        Ok(())
    }

    fn room(&self) -> Room {
        Box::pin(tokio::time::sleep(LOOK_FOR_ROOM))
    }

    fn receiver(&self) -> &str {
        self.name
    }

    fn refused(&self) {}
}
