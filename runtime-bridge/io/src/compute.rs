//! Computing whose amount a pod's author chooses. It is done beside the actors' thread, where it would hold up every other pod;
//! one pod has one piece of it at a time.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::sync::oneshot;

use crate::{Lane, NotRun};

/// A piece of computing.
pub type Piece = Box<dyn FnOnce() + Send>;

/// Does computing for pods.
pub trait Compute: Send + Sync + fmt::Debug {
    /// Does a piece, after all earlier pieces of the same pod. Its panic continues in the caller that awaits the future.
    fn run(&self, pod: &str, piece: Piece) -> BoxFuture<'static, Result<(), NotRun>>;

    /// The same for the pods of one namespace, which have at most half of the places: whatever they compute, other namespaces' pods
    /// wait for none of it.
    fn for_namespace(&self, namespace: &str) -> Arc<dyn Compute>;
}

impl Compute for Lane {
    fn run(&self, pod: &str, piece: Piece) -> BoxFuture<'static, Result<(), NotRun>> {
        self.run_alone(pod, move || {
            piece();
            Ok(())
        })
    }

    fn for_namespace(&self, namespace: &str) -> Arc<dyn Compute> {
        Arc::new(self.of_tenant(namespace))
    }
}

/// Does every piece at once, where it is asked for: a test replays it.
#[cfg(any(test, feature = "fake"))]
#[derive(Clone, Copy, Debug, Default)]
pub struct Inline;

#[cfg(any(test, feature = "fake"))]
impl Compute for Inline {
    fn run(&self, _pod: &str, piece: Piece) -> BoxFuture<'static, Result<(), NotRun>> {
        piece();
        Box::pin(std::future::ready(Ok(())))
    }

    fn for_namespace(&self, _namespace: &str) -> Arc<dyn Compute> {
        Arc::new(*self)
    }
}

/// Has `work` done for a pod, and returns its result.
///
/// # Errors
/// [`NotRun`]: the work was not done.
pub async fn computed<T: Send + 'static>(
    compute: &Arc<dyn Compute>,
    pod: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, NotRun> {
    let (tell, told) = oneshot::channel();
    let piece = Box::new(move || {
        // The caller may have gone.
        let _ = tell.send(work());
    });
    compute.run(pod, piece).await?;
    told.await.map_err(|_| NotRun::RuntimeGone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_pod_has_one_piece_at_a_time_on_another_thread() {
        let lane: Arc<dyn Compute> = Arc::new(Lane::new("test", tokio::runtime::Handle::current()));
        let (free, gate) = std::sync::mpsc::channel::<()>();
        let first = tokio::spawn({
            let lane = lane.clone();
            async move { computed(&lane, "a", move || gate.recv().is_ok()).await }
        });
        tokio::task::yield_now().await;
        let own = std::thread::current().id();
        let other = computed(&lane, "b", move || std::thread::current().id() != own).await;
        assert_eq!(other, Ok(true), "another pod's piece waits for nothing");
        let second = computed(&lane, "a", || ());
        let waits = tokio::time::timeout(std::time::Duration::from_millis(50), second).await;
        assert!(waits.is_err(), "the pod's own does");
        free.send(()).expect("the first piece waits");
        assert_eq!(first.await.expect("no panic"), Ok(true));
        assert_eq!(computed(&(Arc::new(Inline) as _), "a", || 7).await, Ok(7));
    }

    #[tokio::test]
    async fn pieces_of_one_namespace_leave_places_to_the_others() {
        let lane = Lane::new("test", tokio::runtime::Handle::current());
        let (free, gate) = std::sync::mpsc::channel::<()>();
        let gate = Arc::new(std::sync::Mutex::new(gate));
        let crowd = lane.for_namespace("crowd");
        let hang = |number: usize| {
            let (crowd, gate) = (crowd.clone(), gate.clone());
            let piece = move || gate.lock().expect("no panic").recv().is_err();
            tokio::spawn(async move { computed(&crowd, &number.to_string(), piece).await })
        };
        let pieces: Vec<_> = (0..crate::LANE_THREADS_MAX).map(hang).collect();
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        let other = lane.for_namespace("other");
        let soon = std::time::Duration::from_secs(30);
        let done = tokio::time::timeout(soon, computed(&other, "pod", || 7)).await;
        assert_eq!(done, Ok(Ok(7)));
        drop(free);
        for piece in pieces {
            assert_eq!(piece.await.expect("no panic"), Ok(true));
        }
    }
}
