//! PURE: what the pods that were admitted take of the node, so that a new one is judged beside them all without a look at
//! each.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use messages::PodUid;

use super::ports::{self, HostPort};
use super::resources::requests;

/// What one pod takes, as its object says.
#[derive(Debug, PartialEq)]
pub struct Share {
    pod: Arc<Pod>,
    requests: BTreeMap<String, i64>,
    ports: Vec<HostPort>,
}

/// What all pods take that were admitted and have not ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Room {
    shares: BTreeMap<PodUid, Arc<Share>>,
    /// By resource: cpu in thousandths, everything else in whole units.
    used: BTreeMap<String, i128>,
    /// How many have each port of the node: by number and protocol, then by address.
    ports: BTreeMap<(i32, String), BTreeMap<String, usize>>,
}

impl Room {
    /// What the pod takes: as is known here, if its object is the same.
    pub fn share(&self, uid: &PodUid, pod: &Arc<Pod>) -> Arc<Share> {
        let known = self.shares.get(uid).filter(|share| Arc::ptr_eq(&share.pod, pod)).cloned();
        known.unwrap_or_else(|| {
            let ports = ports::host_ports(pod).collect();
            Arc::new(Share { pod: pod.clone(), requests: requests(pod), ports })
        })
    }

    /// The pod takes this from now on, and nothing else.
    pub fn put(&mut self, uid: &PodUid, share: Arc<Share>) {
        self.remove(uid);
        for (name, amount) in &share.requests {
            *self.used.entry(name.clone()).or_default() += i128::from(*amount);
        }
        for port in &share.ports {
            *self.ports.entry(port.key()).or_default().entry(port.ip.clone()).or_default() += 1;
        }
        self.shares.insert(uid.clone(), share);
    }

    /// The pod takes nothing any more.
    pub fn remove(&mut self, uid: &PodUid) {
        let Some(share) = self.shares.remove(uid) else { return };
        for (name, amount) in &share.requests {
            let used = self.used.get_mut(name).expect("what is counted was counted");
            *used -= i128::from(*amount);
            if *used == 0 {
                self.used.remove(name);
            }
        }
        for port in &share.ports {
            let ips = self.ports.get_mut(&port.key()).expect("what is counted was counted");
            let count = ips.get_mut(&port.ip).expect("what is counted was counted");
            *count -= 1;
            if *count == 0 {
                ips.remove(&port.ip);
            }
            if ips.is_empty() {
                self.ports.remove(&port.key());
            }
        }
    }

    /// How much of a resource the pods request together.
    pub(super) fn used(&self, name: &str) -> i64 {
        self.used.get(name).map_or(0, |used| i64::try_from(*used).unwrap_or(i64::MAX))
    }

    /// Whether some pod has this port of the node, or one that takes it in.
    pub(super) fn has(&self, wanted: &HostPort) -> bool {
        let Some(ips) = self.ports.get(&wanted.key()) else { return false };
        wanted.ip == ports::ANY || ips.contains_key(&wanted.ip) || ips.contains_key(ports::ANY)
    }

    /// What these pods take.
    #[cfg(test)]
    pub(crate) fn of(pods: &[&Pod]) -> Self {
        let mut room = Self::default();
        for (number, pod) in pods.iter().enumerate() {
            let uid = PodUid::new(&number.to_string());
            room.put(&uid, room.share(&uid, &Arc::new((*pod).clone())));
        }
        room
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Container, ContainerPort, PodSpec};

    use super::*;
    use crate::admission::fixtures::requesting;

    #[test]
    fn ports_at_many_addresses_are_compared_by_address() {
        let pod = |net: u8| {
            let ports = (0..20_000).map(|number| ContainerPort {
                host_port: Some(80),
                host_ip: Some(format!("127.{net}.{}.{}", number / 250, number % 250)),
                ..ContainerPort::default()
            });
            let container = Container { ports: Some(ports.collect()), ..Container::default() };
            let spec = PodSpec { containers: vec![container], ..PodSpec::default() };
            Pod { spec: Some(spec), ..Pod::default() }
        };
        let room = Room::of(&[&pod(1)]);
        let begun = tokio::time::Instant::now();
        assert!(!ports::conflict(&pod(2), &room) && ports::conflict(&pod(1), &room));
        let took = begun.elapsed();
        assert!(took.as_secs() < 5, "{took:?}");
    }

    #[test]
    fn what_was_taken_is_given_back() {
        let (mut room, a, b) = (Room::default(), PodUid::new("a"), PodUid::new("b"));
        let pod = |cpu: &str| Arc::new(requesting(&[("cpu", cpu)]));
        room.put(&a, room.share(&a, &pod("1")));
        room.put(&b, room.share(&b, &pod("500m")));
        assert_eq!((room.used("cpu"), room.used("pods"), room.used("memory")), (1500, 2, 0));
        room.put(&a, room.share(&a, &pod("2")));
        assert_eq!((room.used("cpu"), room.used("pods")), (2500, 2), "another object of the same pod");
        room.remove(&a);
        room.remove(&a);
        assert_eq!((room.used("cpu"), room.used("pods")), (500, 1));
        room.remove(&b);
        assert_eq!(room, Room::default());
    }
}
