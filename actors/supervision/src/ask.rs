//! Asks: requests with a reply and a deadline. Each is a typed edge of the tree, from the asking actor to the
//! asked one.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use messages::{Delivery, WhenFull};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::address::{AskError, Post};
use crate::context::Subsystem;
use crate::mailbox::Refusal;

/// A type that may ask: every subsystem, and [`Outside`] for the process around the tree.
pub trait Asker: 'static {
    /// The asker's name, as [`Tree::asks`](crate::Tree::asks) shows it.
    const NAME: &'static str;
}

impl<A: Subsystem> Asker for A {
    const NAME: &'static str = <A as Subsystem>::NAME;
}

/// The process and its tests, which ask from outside of the tree. No actor waits for them, so they close no
/// circle.
#[derive(Debug)]
pub enum Outside {}

impl Asker for Outside {
    const NAME: &'static str = "outside";
}

/// The port by which an actor of type `From` asks with messages of type `M`. Cheap to clone; survives
/// restarts of the receiver.
///
/// Only the receiver's seat hands out ports ([`Seated::asked`](crate::Seated::asked)), and notes the edge
/// from `From` to the receiver ([`Tree::asks`](crate::Tree::asks)). An [`Address`](crate::Address) can only
/// tell:
///
/// ```compile_fail,E0599
/// # fn sample<M: messages::Delivery>(address: supervision::Address<M>, message: M) {
/// let _ = address.ask(message, std::time::Duration::from_secs(1));
/// # }
/// ```
///
/// while this compiles:
///
/// ```
/// # fn sample<F: supervision::Asker, M: messages::Delivery>(port: supervision::AskPort<F, M>, message: M) {
/// let _ = port.ask(message, std::time::Duration::from_secs(1));
/// # }
/// ```
pub struct AskPort<From, M: Delivery> {
    post: Arc<dyn Post<M>>,
    from: PhantomData<fn() -> From>,
}

impl<From, M: Delivery> Clone for AskPort<From, M> {
    fn clone(&self) -> Self {
        Self { post: self.post.clone(), from: PhantomData }
    }
}

impl<From: Asker, M: Delivery> fmt::Debug for AskPort<From, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AskPort<{}, {}>({})", From::NAME, M::NAME, self.post.receiver())
    }
}

impl<From: Asker, M: Delivery> AskPort<From, M> {
    pub(crate) fn new(post: Arc<dyn Post<M>>) -> Self {
        Self { post, from: PhantomData }
    }

    /// Sends a request and returns its reply. `deadline` bounds the wait for the reply and, for a message
    /// type of `WhenFull::Wait`, the wait for room in the mailbox before it.
    ///
    /// # Errors
    /// [`AskError`] says why there is no answer.
    pub fn ask(
        &self,
        message: M,
        deadline: Duration,
    ) -> impl Future<Output = Result<M::Result, AskError>> + Send + 'static {
        let post = self.post.clone();
        async move {
            let until = Instant::now() + deadline;
            let mut message = message;
            let answer = loop {
                let (sender, answer) = oneshot::channel();
                match post.post(message, Some(sender)) {
                    Ok(()) => break answer,
                    Err((back, Refusal::Full)) if M::WHEN_FULL == WhenFull::Wait => {
                        message = back;
                        if tokio::time::timeout_at(until, post.room()).await.is_err() {
                            post.refused();
                            return Err(AskError::Full);
                        }
                    }
                    Err((_, refusal)) => {
                        post.refused();
                        return Err(refusal.into());
                    }
                }
            };
            match tokio::time::timeout_at(until, answer).await {
                Ok(Ok(answer)) => Ok(answer),
                Ok(Err(_)) => Err(AskError::Lost),
                Err(_) => Err(AskError::Deadline),
            }
        }
    }
}
