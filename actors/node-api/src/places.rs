//! PURE: whose the connections of a listener are, and which one gives up its place when there is none left.
//!
//! Strangers keep no place from anybody: nobody knows them. Of those that are known, a user and a peer have a share each;
//! what is beyond it is as good as a stranger's.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Whoever is behind an address: with IPv6, all of a network belong to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Peer(u128);

impl From<IpAddr> for Peer {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self(address.to_ipv6_mapped().to_bits()),
            IpAddr::V6(address) => Self(address.to_bits() >> 64 << 64),
        }
    }
}

#[derive(Debug)]
struct Seat<T> {
    peer: Peer,
    user: Option<Arc<str>>,
    leave: T,
}

/// Connections by the order in which they came, each with what ends it.
#[derive(Debug)]
pub struct Seats<T> {
    seats: BTreeMap<u64, Seat<T>>,
    next: u64,
    share: usize,
}

impl<T> Seats<T> {
    /// Nobody is there. `share` is that of one user, and of one peer.
    pub fn new(share: usize) -> Self {
        Self { seats: BTreeMap::new(), next: 0, share: share.max(1) }
    }

    /// A connection has come; its number.
    pub fn come(&mut self, peer: Peer, leave: T) -> u64 {
        let id = self.next;
        self.next += 1;
        self.seats.insert(id, Seat { peer, user: None, leave });
        id
    }

    /// A request of this user was allowed on it.
    pub fn known(&mut self, id: u64, user: &str) {
        if let Some(seat) = self.seats.get_mut(&id)
            && seat.user.as_deref() != Some(user)
        {
            seat.user = Some(Arc::from(user));
        }
    }

    /// It has ended.
    pub fn gone(&mut self, id: u64) {
        self.seats.remove(&id);
    }

    /// Takes out the one that has to go: of the peer that has most without a right to stay, a stranger before others, and
    /// the oldest. None, if all have one.
    pub fn send_away(&mut self) -> Option<T> {
        let mut by_user: BTreeMap<&str, usize> = BTreeMap::new();
        let mut by_peer: BTreeMap<Peer, usize> = BTreeMap::new();
        let mut crowds: BTreeMap<Peer, (usize, Option<u64>, Option<u64>)> = BTreeMap::new();
        for (id, seat) in &self.seats {
            let is_stranger = match &seat.user {
                None => true,
                Some(user) => {
                    let of_user = by_user.entry(user).or_default();
                    let of_peer = by_peer.entry(seat.peer).or_default();
                    *of_user += 1;
                    *of_peer += 1;
                    if *of_user <= self.share && *of_peer <= self.share {
                        continue;
                    }
                    false
                }
            };
            let (count, stranger, known) = crowds.entry(seat.peer).or_default();
            *count += 1;
            let oldest = if is_stranger { stranger } else { known };
            oldest.get_or_insert(*id);
        }
        let largest = crowds.into_values().max_by_key(|(count, stranger, known)| {
            // Of crowds of one size, that of the oldest.
            (*count, std::cmp::Reverse((*stranger).min(*known).or(*stranger).or(*known)))
        });
        let (_, stranger, known) = largest?;
        self.seats.remove(&stranger.or(known)?).map(|seat| seat.leave)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(text: &str) -> Peer {
        Peer::from(text.parse::<IpAddr>().unwrap())
    }

    fn of(share: usize, connections: &[(&str, Option<&str>)]) -> Seats<usize> {
        let mut seats = Seats::new(share);
        for (n, (address, user)) in connections.iter().enumerate() {
            let id = seats.come(peer(address), n);
            if let Some(user) = user {
                seats.known(id, user);
            }
        }
        seats
    }

    fn leaving(mut seats: Seats<usize>) -> Vec<usize> {
        std::iter::from_fn(|| seats.send_away()).collect()
    }

    #[test]
    fn strangers_go_oldest_first_and_of_the_largest_crowd() {
        let crowd = [("1.1.1.1", None), ("9.9.9.9", None), ("9.9.9.9", None), ("9.9.9.9", None)];
        assert_eq!(leaving(of(9, &crowd)), [1, 2, 0, 3]);
        let known = [("1.1.1.1", Some("jane")), ("1.1.1.1", None), ("2.2.2.2", Some("joe"))];
        assert_eq!(leaving(of(9, &known)), [1], "who is known stays");
    }

    #[test]
    fn a_network_of_ipv6_is_one_crowd() {
        assert_eq!(peer("2001:db8::1"), peer("2001:db8::ffff:2"));
        assert_ne!(peer("2001:db8::1"), peer("2001:db8:0:1::1"));
        assert_eq!(peer("::ffff:10.0.0.1"), peer("10.0.0.1"));
        assert_ne!(peer("10.0.0.1"), peer("10.0.0.2"));
    }

    #[test]
    fn a_user_and_a_peer_have_a_right_to_their_share_only() {
        let user = [("1.1.1.1", Some("jane")), ("2.2.2.2", Some("jane")), ("3.3.3.3", Some("jane"))];
        assert_eq!(leaving(of(2, &user)), [2]);
        let peer = [("1.1.1.1", Some("jane")), ("1.1.1.1", Some("joe")), ("1.1.1.1", Some("ann"))];
        assert_eq!(leaving(of(2, &peer)), [2]);
    }

    #[test]
    fn who_takes_more_than_a_share_does_not_outlast_a_newcomer() {
        let mut seats = of(2, &[("1.1.1.1", Some("hog")); 6]);
        // Each of the newcomers is still nobody when the hog comes again.
        seats.come(peer("2.2.2.2"), 100);
        assert_eq!(seats.send_away(), Some(2));
        seats.come(peer("1.1.1.1"), 6);
        assert_eq!((seats.send_away(), seats.send_away()), (Some(6), Some(3)));
    }

    #[test]
    fn one_that_has_gone_or_was_sent_away_is_not_counted() {
        let mut seats = of(1, &[("1.1.1.1", None), ("1.1.1.1", None)]);
        assert_eq!(seats.send_away(), Some(0));
        seats.known(0, "late");
        seats.gone(0);
        seats.gone(1);
        assert_eq!(seats.send_away(), None);
    }
}
