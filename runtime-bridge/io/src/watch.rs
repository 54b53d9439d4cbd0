//! A channel of one value, as `tokio::sync::watch`, whose receivers are woken in the order in which they wait. Tokio's
//! wakes them in an order that is drawn at random, so that a simulation could not be played twice the same way.

// The ban is lifted here alone: this is what stands between tokio's channel and the rest.
#![allow(clippy::disallowed_types)]

use std::pin::pin;
use std::sync::Arc;

use tokio::sync::Notify;
use tokio::sync::watch;
pub use tokio::sync::watch::Ref;

/// All senders are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("all senders are gone")]
pub struct Closed;

/// The sending half.
#[derive(Debug)]
pub struct Sender<T> {
    /// Absent while it is dropped: receivers are woken after that.
    value: Option<watch::Sender<T>>,
    woken: Arc<Notify>,
}

/// The receiving half.
#[derive(Debug)]
pub struct Receiver<T> {
    value: watch::Receiver<T>,
    woken: Arc<Notify>,
}

/// A channel with this value.
pub fn channel<T>(value: T) -> (Sender<T>, Receiver<T>) {
    let sender = Sender::new(value);
    let receiver = sender.subscribe();
    (sender, receiver)
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.value = None;
        self.woken.notify_waiters();
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self { value: self.value.clone(), woken: self.woken.clone() }
    }
}

impl<T: Default> Default for Sender<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> Sender<T> {
    /// A channel with this value, and no receiver.
    pub fn new(value: T) -> Self {
        Self { value: Some(watch::Sender::new(value)), woken: Arc::default() }
    }

    fn value(&self) -> &watch::Sender<T> {
        self.value.as_ref().expect("the value is there until the sender is dropped")
    }

    /// Ends when there is no receiver.
    pub async fn closed(&self) {
        self.value().closed().await;
    }

    /// A receiver that has seen the present value.
    pub fn subscribe(&self) -> Receiver<T> {
        Receiver { value: self.value().subscribe(), woken: self.woken.clone() }
    }

    /// The present value.
    pub fn borrow(&self) -> Ref<'_, T> {
        self.value().borrow()
    }

    /// Sets the value; returns the one before.
    pub fn send_replace(&self, value: T) -> T {
        let before = self.value().send_replace(value);
        self.woken.notify_waiters();
        before
    }

    /// Changes the value.
    pub fn send_modify(&self, change: impl FnOnce(&mut T)) {
        self.value().send_modify(change);
        self.woken.notify_waiters();
    }

    /// Changes the value; receivers are woken if `change` says so.
    pub fn send_if_modified(&self, change: impl FnOnce(&mut T) -> bool) -> bool {
        let modified = self.value().send_if_modified(change);
        if modified {
            self.woken.notify_waiters();
        }
        modified
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        Self { value: self.value.clone(), woken: self.woken.clone() }
    }
}

impl<T> Receiver<T> {
    /// The present value.
    pub fn borrow(&self) -> Ref<'_, T> {
        self.value.borrow()
    }

    /// The present value, which counts as seen.
    pub fn borrow_and_update(&mut self) -> Ref<'_, T> {
        self.value.borrow_and_update()
    }

    /// Whether all senders are gone.
    pub fn is_closed(&self) -> bool {
        self.value.has_changed().is_err()
    }

    /// Lets the present value count as not seen.
    pub fn mark_changed(&mut self) {
        self.value.mark_changed();
    }

    /// Lets the present value count as seen.
    pub fn mark_unchanged(&mut self) {
        self.value.mark_unchanged();
    }

    /// Ends when there is a value that was not seen, which then counts as seen.
    ///
    /// # Errors
    /// There will be none.
    pub async fn changed(&mut self) -> Result<(), Closed> {
        loop {
            let mut woken = pin!(self.woken.notified());
            // From here on no wake is missed.
            woken.as_mut().enable();
            if self.value.borrow().has_changed() {
                self.value.mark_unchanged();
                return Ok(());
            }
            if self.value.has_changed().is_err() {
                return Err(Closed);
            }
            woken.await;
        }
    }

    /// Ends when `is_meant` says yes of the value, which counts as seen. Returns the value, which may be a newer one by
    /// then.
    ///
    /// # Errors
    /// There will be none.
    pub async fn wait_for(&mut self, mut is_meant: impl FnMut(&T) -> bool) -> Result<Ref<'_, T>, Closed> {
        loop {
            let mut woken = pin!(self.woken.notified());
            woken.as_mut().enable();
            if is_meant(&self.value.borrow_and_update()) {
                break;
            }
            if self.value.has_changed().is_err() {
                return Err(Closed);
            }
            woken.await;
        }
        Ok(self.value.borrow())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[tokio::test]
    async fn receivers_are_woken_in_the_order_in_which_they_wait() {
        let (sender, _) = channel(0);
        let order = Arc::new(Mutex::new(Vec::new()));
        let waits: Vec<_> = (0..20)
            .map(|number| {
                let (mut receiver, order) = (sender.subscribe(), order.clone());
                tokio::spawn(async move {
                    receiver.changed().await.unwrap();
                    order.lock().unwrap().push(number);
                })
            })
            .collect();
        tokio::task::yield_now().await;
        sender.send_modify(|value| *value = 1);
        for wait in waits {
            wait.await.unwrap();
        }
        assert_eq!(*order.lock().unwrap(), (0..20).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn a_change_is_seen_once_and_the_end_of_the_senders_is_told() {
        let (sender, mut receiver) = channel(0);
        sender.send_replace(1);
        assert_eq!(receiver.changed().await, Ok(()));
        let waits =
            tokio::spawn(async move { receiver.wait_for(|value| *value == 3).await.map(|value| *value) });
        tokio::task::yield_now().await;
        assert!(!sender.send_if_modified(|value| std::mem::replace(value, 2) == 7));
        sender.send_replace(3);
        assert_eq!(waits.await.unwrap(), Ok(3));
        let mut late = sender.subscribe();
        let waits = tokio::spawn(async move { late.changed().await });
        tokio::task::yield_now().await;
        sender.send_replace(4);
        drop(sender);
        assert_eq!(waits.await.unwrap(), Ok(()), "the last value is seen before the end");
        let (sender, mut receiver) = channel(0);
        drop(sender);
        assert_eq!(receiver.changed().await, Err(Closed));
    }
}
