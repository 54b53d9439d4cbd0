//! PURE: the owners of a listener's connections, and which connection is closed when there are too many.
//!
//! A connection without an allowed request is a stranger's and never keeps another one out. A user and a peer each have
//! a share of the places; connections beyond that share rank like strangers'. The API server is one user and one peer for all
//! its callers: of a peer's connections those go first that are for the namespace with the most. A few users within their shares
//! keep no other out either.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use bridge_net::peer::Peer;

/// The record of a connection's user. As long as it is held, the connection exists.
#[derive(Debug, Default)]
pub struct PeerUser {
    name: OnceLock<Arc<str>>,
    namespace: Mutex<Option<Arc<str>>>,
}

impl PeerUser {
    /// Records that a request of this user was allowed; only the first call counts.
    pub fn known(&self, user: &str) {
        self.name.get_or_init(|| Arc::from(user));
    }

    /// Records whose pod the present request is about; `None` for one that is about no pod.
    pub fn is_for(&self, namespace: Option<&str>) {
        *self.namespace.lock().unwrap_or_else(PoisonError::into_inner) = namespace.map(Arc::from);
    }

    fn namespace(&self) -> Option<Arc<str>> {
        self.namespace.lock().unwrap_or_else(PoisonError::into_inner).clone()
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

/// The connections of one peer.
#[derive(Debug, Default)]
struct PeerConnections {
    /// How many are beyond its and its users' shares.
    beyond: usize,
    /// How many are strangers'.
    strangers: usize,
    /// The oldest one of a stranger.
    stranger: Option<usize>,
    /// Those of known users, by the namespace that they are for.
    known: BTreeMap<Option<Arc<str>>, Known>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    count: usize,
    /// The oldest one beyond the shares.
    beyond: Option<usize>,
}

impl PeerConnections {
    /// The oldest connection beyond the shares.
    fn oldest(&self) -> Option<usize> {
        self.known.values().filter_map(|known| known.beyond).chain(self.stranger).min()
    }

    /// The connection to close.
    fn leaves(&self) -> Option<usize> {
        let most = |of_pods: bool| {
            let known = self.known.iter().filter(|(namespace, _)| namespace.is_some() || !of_pods);
            let beyond = known.filter_map(|(_, known)| Some((known.count, known.beyond?)));
            beyond.max_by_key(|(count, oldest)| (*count, Reverse(*oldest)))
        };
        // A newcomer from the API server is a stranger until its request is allowed, whichever pod it is for: it gives way to no
        // tenant that has more connections than there are newcomers.
        let crowded = most(true).filter(|(count, _)| *count > self.strangers);
        let oldest = |(_, oldest)| oldest;
        crowded.map(oldest).or(self.stranger).or_else(|| most(false).map(oldest))
    }
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
    /// known users, of these one for the namespace with the most, the oldest first; a namespace with more connections than the
    /// peer has strangers comes before them. If every connection is within a share and no place is left, the user with the
    /// most loses the oldest one. `None` if there is room.
    pub fn send_away(&mut self) -> Option<T> {
        self.forget_the_gone();
        let share = (self.max / 2).max(1);
        // How many each user has, and the oldest one.
        let mut by_user: BTreeMap<Arc<str>, (usize, usize)> = BTreeMap::new();
        let mut by_peer: BTreeMap<Peer, usize> = BTreeMap::new();
        let mut crowds: BTreeMap<Peer, PeerConnections> = BTreeMap::new();
        for (at, seat) in self.seats.iter().enumerate() {
            let crowd = crowds.entry(seat.peer).or_default();
            let card = seat.card.upgrade();
            let Some((user, card)) = card.and_then(|card| Some((card.name.get().cloned()?, card))) else {
                crowd.beyond += 1;
                crowd.strangers += 1;
                crowd.stranger.get_or_insert(at);
                continue;
            };
            let (of_user, _) = by_user.entry(user).or_insert((0, at));
            let of_peer = by_peer.entry(seat.peer).or_default();
            *of_user += 1;
            *of_peer += 1;
            let known = crowd.known.entry(card.namespace()).or_default();
            known.count += 1;
            if *of_user > share || *of_peer > share {
                crowd.beyond += 1;
                known.beyond.get_or_insert(at);
            }
        }
        // Among crowds of one size, the one with the oldest connection.
        let crowds = crowds.into_values().filter_map(|crowd| Some((crowd.oldest()?, crowd)));
        let largest = crowds.max_by_key(|(oldest, crowd)| (crowd.beyond, Reverse(*oldest)));
        let leaves = match largest {
            Some((_, crowd)) => crowd.leaves(),
            None if self.seats.len() < self.max => None,
            None => by_user
                .into_values()
                .max_by_key(|(count, oldest)| (*count, Reverse(*oldest)))
                .map(|(_, oldest)| oldest),
        };
        self.seats.remove(leaves?).map(|seat| seat.leave)
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

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
    fn a_user_and_a_peer_have_a_right_to_their_share_only() {
        let user = [("1.1.1.1", Some("jane")), ("2.2.2.2", Some("jane")), ("3.3.3.3", Some("jane"))];
        assert_eq!(leaving(of(2, &user)), [2]);
        let peer = [("1.1.1.1", Some("jane")), ("1.1.1.1", Some("joe")), ("1.1.1.1", Some("ann"))];
        assert_eq!(leaving(of(2, &peer)), [2]);
    }

    #[test]
    fn of_one_peer_the_namespace_with_the_most_loses_first() {
        let (mut seats, mut cards) = of(4, &[("1.1.1.1", Some("apiserver")); 8]);
        cards.iter().for_each(|card| card.is_for(Some("crowd")));
        for n in 8..12 {
            let card = seats.come(peer("1.1.1.1"), n);
            card.known("apiserver");
            card.is_for(Some("quiet"));
            cards.push(card);
        }
        assert_eq!(
            [(); 4].map(|()| seats.send_away()),
            [4, 5, 6, 7].map(Some),
            "the oldest beyond the share"
        );
        assert_eq!(seats.send_away(), Some(8), "both have as many: the one that has some beyond the share");
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
    fn a_tenant_with_many_streams_keeps_no_newcomer_out() {
        let (mut seats, cards) = of(4, &[("1.1.1.1", Some("apiserver")); 8]);
        cards.iter().for_each(|card| card.is_for(Some("crowd")));
        // None of these has said yet what it is for when the next connection is closed.
        let mut newcomers = Vec::new();
        for n in 8..11 {
            newcomers.push(seats.come(peer("1.1.1.1"), n));
            assert_eq!(seats.send_away(), Some(n - 4), "the oldest of the crowd beyond the share");
        }
        assert_eq!((newcomers.len(), cards.len()), (3, 8));
    }

    #[test]
    fn users_within_their_shares_leave_room_for_another() {
        let two = [("1.1.1.1", Some("jane")), ("2.2.2.2", Some("joe"))];
        let (mut seats, _cards) = of(2, &[two[0], two[1], two[0], two[1]]);
        assert_eq!(seats.send_away(), Some(0), "of those with the most the one that came first");
        assert_eq!(seats.send_away(), None, "there is room now");
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
