//! Neighbours: recorded stand-ins for the actors that the actor under test asks and tells, with faults on demand.

use std::sync::{Arc, Mutex, MutexGuard};

use actix::Message;
use messages::Delivery;
use supervision::fake::Received;
use supervision::{Address, AskPort, Asker};

/// The answer of a neighbour to a message.
type Answer<M> = Arc<dyn Fn(&M) -> <M as Message>::Result + Send + Sync>;

/// How a neighbour treats a message.
enum Manner<M: Delivery> {
    /// Takes the message. An asker waits in vain.
    Silent,
    /// Takes the message, and answers.
    Answers(Answer<M>),
    /// Takes the message, and crashes before the answer: the answer is lost.
    Loses,
    /// Refuses the message: the mailbox is full.
    Full,
}

struct State<M: Delivery> {
    manner: Manner<M>,
    heard: Vec<M>,
    refused: Vec<M>,
}

/// The stand-in for another actor, for one message type. Clones are the same neighbour.
pub struct Neighbour<M: Delivery> {
    name: &'static str,
    state: Arc<Mutex<State<M>>>,
}

impl<M: Delivery> Clone for Neighbour<M> {
    fn clone(&self) -> Self {
        Self { name: self.name, state: self.state.clone() }
    }
}

impl<M: Delivery> Neighbour<M> {
    /// The actor of this name. It takes messages; an asker waits until the deadline of its ask.
    pub fn new(name: &'static str) -> Self {
        let state = State { manner: Manner::Silent, heard: Vec::new(), refused: Vec::new() };
        Self { name, state: Arc::new(Mutex::new(state)) }
    }

    /// The actor of this name, which answers asks.
    pub fn answering(name: &'static str, answer: impl Fn(&M) -> M::Result + Send + Sync + 'static) -> Self {
        let neighbour = Self::new(name);
        neighbour.answer(answer);
        neighbour
    }

    /// The address that the actor under test is given.
    pub fn address(&self) -> Address<M> {
        let this = self.clone();
        Address::scripted(self.name, move |message| this.receive(message))
    }

    /// The port that the actor under test asks through.
    pub fn asked<From: Asker>(&self) -> AskPort<From, M> {
        let this = self.clone();
        AskPort::scripted(self.name, move |message| this.receive(message))
    }

    /// Sets the answer from now on. A message that is told has no answer, and the closure may be a reaction.
    pub fn answer(&self, answer: impl Fn(&M) -> M::Result + Send + Sync + 'static) {
        self.state().manner = Manner::Answers(Arc::new(answer));
    }

    /// Takes messages from now on without answering.
    pub fn fall_silent(&self) {
        self.state().manner = Manner::Silent;
    }

    /// Crashes over each ask from now on: the asker learns that the answer is lost.
    pub fn lose_answers(&self) {
        self.state().manner = Manner::Loses;
    }

    /// Refuses messages from now on, as if the mailbox were full.
    pub fn refuse(&self) {
        self.state().manner = Manner::Full;
    }

    /// The messages taken so far, oldest first.
    pub fn heard(&self) -> Vec<M> {
        self.state().heard.clone()
    }

    /// The newest message taken.
    pub fn last(&self) -> Option<M> {
        self.state().heard.last().cloned()
    }

    /// The number of messages taken so far.
    pub fn count(&self) -> usize {
        self.state().heard.len()
    }

    /// The messages refused so far, oldest first; a wait for room counts each time it looks.
    pub fn refused(&self) -> Vec<M> {
        self.state().refused.clone()
    }

    /// Forgets the messages taken so far, and returns them.
    pub fn take(&self) -> Vec<M> {
        std::mem::take(&mut self.state().heard)
    }

    fn receive(&self, message: M) -> Received<M> {
        let answer = {
            let mut state = self.state();
            match &state.manner {
                Manner::Full => {
                    state.refused.push(message.clone());
                    return Received::Full(message);
                }
                Manner::Silent => Err(Received::Kept),
                Manner::Loses => Err(Received::Lost),
                Manner::Answers(answer) => Ok(answer.clone()),
            }
        };
        self.state().heard.push(message.clone());
        // Called outside the lock: the answer may look at the messages taken.
        answer.map_or_else(|given| given, |answer| Received::Answered(answer(&message)))
    }

    fn state(&self) -> MutexGuard<'_, State<M>> {
        self.state.lock().expect("no test panics while it holds the lock")
    }
}
