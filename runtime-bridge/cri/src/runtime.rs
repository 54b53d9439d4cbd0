//! The trait of a container runtime.

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;

use super::brief::cut;
use super::error::CriError;
use super::rpc::for_each_rpc;
use super::wire::*;

/// The answer to a call, later. The call ends by the deadline of its RPC.
pub type Reply<T> = BoxFuture<'static, Result<T, CriError>>;

/// The stream of container events, which ends when the connection or the runtime ends it.
pub type ContainerEvents = BoxStream<'static, Result<ContainerEventResponse, CriError>>;

macro_rules! runtime_trait {
    ($($service:ident { $($kind:ident $method:ident($request:ident) -> $response:ident = $name:ident $label:literal;)* })*) => {
        /// RuntimeService and ImageService of the Container Runtime Interface, one method per RPC.
        ///
        /// The contract that the real client and the fake keep:
        /// - a call starts when its method is called, whether or not the future is polled at once, or when it is polled
        ///   first; callers may rely on neither;
        /// - each call ends by its own deadline ([`Deadlines`](super::Deadlines)) with
        ///   [`DeadlineExceeded`](super::CriErrorKind::DeadlineExceeded), which does not tell whether the runtime
        ///   acted;
        /// - dropping the future of a call that only reads, or of a pull, cancels it; dropping that of any other
        ///   mutating call that was polled does not.
        ///
        /// # Errors
        /// [`CriError`] with the RPC's name, from every method.
        pub trait Runtime: Send + Sync + 'static {
            $($(
                #[doc = concat!("`", stringify!($name), "`.")]
                fn $method(&self, request: $request) -> Reply<$response>;
            )*)*

            /// `ExecSync`, of whose outputs the first [`OUTPUT_KEPT_MAX`](super::OUTPUT_KEPT_MAX) bytes are kept.
            fn exec_briefly(&self, request: ExecSyncRequest) -> Reply<ExecSyncResponse> {
                let answer = self.exec_sync(request);
                async move { answer.await.map(cut) }.boxed()
            }

            /// `GetContainerEvents`, without the statuses of a pod's containers. The reply has a deadline, the stream has none.
            fn get_container_events(&self, request: GetEventsRequest) -> Reply<ContainerEvents>;
        }
    };
}
for_each_rpc!(runtime_trait);
