//! PURE: the owners of a listener's connections, and which connection is closed when there are too many.
//!
//! A connection without an allowed request is a stranger's and never keeps another one out. A user and a peer each have
//! a share of the places; connections beyond that share rank like strangers'.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, OnceLock, Weak};

/// The client behind an address; all addresses of one IPv6 network count as one client.
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

/// The record of a connection's user. As long as it is held, the connection exists.
#[derive(Debug, Default)]
pub struct PeerUser(OnceLock<Arc<str>>);

impl PeerUser {
    /// Records that a request of this user was allowed; only the first call counts.
    pub fn known(&self, user: &str) {
        self.0.get_or_init(|| Arc::from(user));
    }
}

#[derive(Debug)]
struct ConnectionEntry<T> {
    peer: Peer,
    card: Weak<PeerUser>,
    leave: T,
}

/// The connections in the order in which they came, each with the value that ends it.
#[derive(Debug)]
pub struct ConnectionTable<T> {
    seats: VecDeque<ConnectionEntry<T>>,
    max: usize,
}

/// The connections of one peer beyond its and its users' shares: their number, the oldest of a stranger and the oldest
/// of a known user.
#[derive(Clone, Copy, Debug, Default)]
struct PeerConnections {
    count: usize,
    stranger: Option<usize>,
    known: Option<usize>,
}

impl<T> ConnectionTable<T> {
    /// No connections. The share of one user, and of one peer, is half of `max`.
    pub fn new(max: usize) -> Self {
        Self { seats: VecDeque::new(), max: max.max(1) }
    }

    /// Adds a connection.
    pub fn come(&mut self, peer: Peer, leave: T) -> Arc<PeerUser> {
        if self.seats.len() >= 2 * self.max {
            self.forget_the_gone();
        }
        let card = Arc::default();
        self.seats.push_back(ConnectionEntry { peer, card: Arc::downgrade(&card), leave });
        card
    }

    fn forget_the_gone(&mut self) {
        self.seats.retain(|seat| seat.card.strong_count() > 0);
    }

    /// Takes out the connection to close: of the peer with the most connections beyond its share, strangers before
    /// known users, the oldest first. `None` if every connection is within a share.
    pub fn send_away(&mut self) -> Option<T> {
        self.forget_the_gone();
        let share = (self.max / 2).max(1);
        let mut by_user: BTreeMap<Arc<str>, usize> = BTreeMap::new();
        let mut by_peer: BTreeMap<Peer, usize> = BTreeMap::new();
        let mut crowds: BTreeMap<Peer, PeerConnections> = BTreeMap::new();
        for (at, seat) in self.seats.iter().enumerate() {
            let user = seat.card.upgrade().and_then(|card| card.0.get().cloned());
            let is_stranger = user.is_none();
            if let Some(user) = user {
                let of_user = by_user.entry(user).or_default();
                let of_peer = by_peer.entry(seat.peer).or_default();
                *of_user += 1;
                *of_peer += 1;
                if *of_user <= share && *of_peer <= share {
                    continue;
                }
            }
            let crowd = crowds.entry(seat.peer).or_default();
            crowd.count += 1;
            let oldest = if is_stranger { &mut crowd.stranger } else { &mut crowd.known };
            oldest.get_or_insert(at);
        }
        // Among crowds of one size, the one with the oldest connection.
        let oldest = |crowd: &PeerConnections| crowd.stranger.into_iter().chain(crowd.known).min();
        let largest =
            crowds.into_values().max_by_key(|crowd| (crowd.count, std::cmp::Reverse(oldest(crowd))))?;
        self.seats.remove(largest.stranger.or(largest.known)?).map(|seat| seat.leave)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(text: &str) -> Peer {
        Peer::from(text.parse::<IpAddr>().unwrap())
    }

    /// Seats with a share of this many.
    fn of(
        share: usize,
        connections: &[(&str, Option<&str>)],
    ) -> (ConnectionTable<usize>, Vec<Arc<PeerUser>>) {
        let mut seats = ConnectionTable::new(2 * share);
        let come = |(n, (address, user)): (usize, &(&str, Option<&str>))| {
            let card = seats.come(peer(address), n);
            if let Some(user) = user {
                card.known(user);
            }
            card
        };
        let cards = connections.iter().enumerate().map(come).collect();
        (seats, cards)
    }

    fn leaving((mut seats, _cards): (ConnectionTable<usize>, Vec<Arc<PeerUser>>)) -> Vec<usize> {
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
        let (mut seats, _cards) = of(2, &[("1.1.1.1", Some("hog")); 6]);
        // Each newcomer is still a stranger when the next connection is closed.
        let _newcomer = seats.come(peer("2.2.2.2"), 100);
        assert_eq!(seats.send_away(), Some(2));
        let _again = seats.come(peer("1.1.1.1"), 6);
        assert_eq!((seats.send_away(), seats.send_away()), (Some(6), Some(3)));
    }

    #[test]
    fn one_that_has_gone_or_was_sent_away_is_not_counted() {
        let (mut seats, mut cards) = of(1, &[("1.1.1.1", None), ("1.1.1.1", None)]);
        assert_eq!(seats.send_away(), Some(0));
        cards.clear();
        assert_eq!(seats.send_away(), None);
        for n in 0..1000 {
            seats.come(peer("1.1.1.1"), n);
        }
        assert!(seats.seats.len() <= 4, "{}", seats.seats.len());
    }
}
