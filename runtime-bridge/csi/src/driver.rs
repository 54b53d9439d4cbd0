//! The trait of a CSI driver, and of the way to one.

use std::sync::Arc;

use futures::future::BoxFuture;

use crate::error::CsiError;
use crate::rpc::for_each_rpc;
use crate::wire::*;

/// The answer to a call, later. The call ends by the deadline of its RPC.
pub type Reply<T> = BoxFuture<'static, Result<T, CsiError>>;

macro_rules! driver_trait {
    ($($service:ident { $($kind:ident $method:ident($request:ident) -> $response:ident = $name:ident;)* })*) => {
        /// The services Identity and Node of the Container Storage Interface, one method per RPC.
        ///
        /// The contract that the real client and the fake keep:
        /// - a call starts when its method is called, whether or not the future is polled at once, or when it is polled
        ///   first; callers may rely on neither;
        /// - each call ends by its own deadline ([`Deadlines`](crate::Deadlines)) with
        ///   [`DeadlineExceeded`](crate::CsiErrorKind::DeadlineExceeded), which does not tell whether the driver acted;
        /// - dropping the future cancels the call at the driver, which may act all the same.
        ///
        /// # Errors
        /// [`CsiError`] with the driver's and the RPC's name, from every method.
        pub trait Driver: Send + Sync + 'static {
            $($(
                #[doc = concat!("`", stringify!($name), "`.")]
                fn $method(&self, request: $request) -> Reply<$response>;
            )*)*
        }
    };
}
for_each_rpc!(driver_trait);

/// The way to the driver behind an endpoint.
pub trait Connect: Send + Sync + 'static {
    /// The driver of this name at this endpoint, a path of a socket. Nothing is sent before the first call.
    fn connect(&self, driver: &str, endpoint: &str) -> Arc<dyn Driver>;
}
