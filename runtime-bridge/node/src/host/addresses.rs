//! The addresses of this machine.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::runtime::Handle;

use super::own_process::{default_address, default_address_v6};
use bridge_io::{Lane, NotRun};
use bridge_net::names;

/// Addresses by which a machine may be reached.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FoundAddresses {
    /// The addresses that the resolver returned for the name, in its order.
    pub looked_up: Vec<IpAddr>,
    /// Those of the addresses looked up or asked about that belong to this machine.
    pub local: BTreeSet<IpAddr>,
    /// The source addresses of the default routes: IPv4, then IPv6.
    pub default_routes: Vec<IpAddr>,
}

/// Finds a machine's addresses, for NodeStatus.
pub trait HostAddresses: Send + Sync + std::fmt::Debug {
    /// Looks `name` up, and checks which of these and the `asked` addresses belong to this machine. Takes as long as
    /// the resolver does.
    fn find(&self, name: &str, asked: &[IpAddr]) -> BoxFuture<'static, Result<FoundAddresses, NotRun>>;
}

/// The real machine with its resolver.
#[derive(Debug, Clone)]
pub struct ThisHost {
    lane: Lane,
}

impl ThisHost {
    /// Blocking calls run on threads of `io`.
    pub fn new(io: Handle) -> Self {
        Self { lane: Lane::new("NodeStatus", io) }
    }
}

impl HostAddresses for ThisHost {
    fn find(&self, name: &str, asked: &[IpAddr]) -> BoxFuture<'static, Result<FoundAddresses, NotRun>> {
        let (lane, name, asked) = (self.lane.clone(), name.to_owned(), asked.to_vec());
        async move {
            let looked_up = names::resolve("node", &name).await.unwrap_or_default();
            lane.run(move || {
                let local = looked_up.iter().chain(&asked).copied().filter(|ip| is_local(*ip)).collect();
                let default_routes = default_address().into_iter().chain(default_address_v6()).collect();
                Ok(FoundAddresses { looked_up, local, default_routes })
            })
            .await
        }
        .boxed()
    }
}

/// Whether an address belongs to this machine: only such an address can be bound to.
fn is_local(ip: IpAddr) -> bool {
    UdpSocket::bind(SocketAddr::new(ip, 0)).is_ok()
}

/// A machine with the addresses that a test sets; clones are the same machine.
#[cfg(any(test, feature = "fake"))]
#[derive(Debug, Clone, Default)]
pub struct FakeHostAddresses(std::sync::Arc<std::sync::Mutex<FoundAddresses>>);

#[cfg(any(test, feature = "fake"))]
impl FakeHostAddresses {
    /// A machine with these addresses.
    pub fn new(found: FoundAddresses) -> Self {
        let machine = Self::default();
        machine.set(found);
        machine
    }

    /// Replaces the machine's addresses.
    pub fn set(&self, found: FoundAddresses) {
        *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = found;
    }
}

#[cfg(any(test, feature = "fake"))]
impl HostAddresses for FakeHostAddresses {
    fn find(&self, _: &str, _: &[IpAddr]) -> BoxFuture<'static, Result<FoundAddresses, NotRun>> {
        let found = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        Box::pin(std::future::ready(Ok(found)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn localhost_is_this_machine_and_an_address_for_documentation_is_not() {
        let foreign: IpAddr = "192.0.2.77".parse().expect("an address");
        let host = ThisHost::new(Handle::current());
        let found = host.find("localhost", &[foreign]).await.expect("the runtime lives");
        assert!(found.looked_up.iter().any(IpAddr::is_loopback), "{found:?}");
        assert!(found.local.iter().any(IpAddr::is_loopback) && !found.local.contains(&foreign), "{found:?}");
    }
}
