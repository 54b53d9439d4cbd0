//! Neighbours: what the actor under test asks and tells somebody else is recorded, and goes wrong on order.

use std::sync::{Arc, Mutex, MutexGuard};

use actix::Message;
use messages::Delivery;
use supervision::fake::Received;
use supervision::{Address, AskPort, Asker};

/// What a neighbour answers to a message.
type Answer<M> = Arc<dyn Fn(&M) -> <M as Message>::Result + Send + Sync>;

/// What a neighbour does with a message.
enum Manner<M: Delivery> {
    /// Takes it. An asker waits in vain.
    Silent,
    /// Takes it, and answers.
    Answers(Answer<M>),
    /// Takes it, and crashes before the answer: the answer is lost.
    Loses,
    /// Refuses it: the mailbox is full.
    Full,
}

struct State<M: Delivery> {
    manner: Manner<M>,
    heard: Vec<M>,
    refused: Vec<M>,
}

/// Another actor as the actor under test meets it, for one message type. Clones are one neighbour.
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
    /// The actor of this name. It takes messages; who asks it waits until the deadline of the ask.
    pub fn new(name: &'static str) -> Self {
        let state = State { manner: Manner::Silent, heard: Vec::new(), refused: Vec::new() };
        Self { name, state: Arc::new(Mutex::new(state)) }
    }

    /// The same, answering asks.
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

    /// From now on it answers so. For a message that is told the answer is nothing, and the closure may be a reaction.
    pub fn answer(&self, answer: impl Fn(&M) -> M::Result + Send + Sync + 'static) {
        self.state().manner = Manner::Answers(Arc::new(answer));
    }

    /// From now on it takes messages and answers nothing.
    pub fn fall_silent(&self) {
        self.state().manner = Manner::Silent;
    }

    /// From now on it crashes over each ask: the asker learns that the answer is lost.
    pub fn lose_answers(&self) {
        self.state().manner = Manner::Loses;
    }

    /// From now on its mailbox is full.
    pub fn refuse(&self) {
        self.state().manner = Manner::Full;
    }

    /// What it has taken so far, oldest first.
    pub fn heard(&self) -> Vec<M> {
        self.state().heard.clone()
    }

    /// The newest that it has taken.
    pub fn last(&self) -> Option<M> {
        self.state().heard.last().cloned()
    }

    /// How many messages it has taken so far.
    pub fn count(&self) -> usize {
        self.state().heard.len()
    }

    /// What it has refused so far, oldest first; a wait for room is one refusal for each look.
    pub fn refused(&self) -> Vec<M> {
        self.state().refused.clone()
    }

    /// Forgets what it has heard, and tells it.
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
        // Outside the lock: the answer may look at what was heard.
        answer.map_or_else(|given| given, |answer| Received::Answered(answer(&message)))
    }

    fn state(&self) -> MutexGuard<'_, State<M>> {
        self.state.lock().expect("no test panics while it holds the lock")
    }
}
