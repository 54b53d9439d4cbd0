//! The guarantees of plain addresses, and their limits.

use actix::dev::SendError;
use actix::{Actor, AsyncContext, Context, MailboxError};

use crate::world::{Count, Plain, Seen, Stop, on_one_thread, settle};

#[test]
fn do_send_is_unbounded() {
    on_one_thread(async {
        let seen = Seen::default();
        let addr = Plain::new(&seen).start();
        for _ in 0..10_000 {
            addr.do_send(Count);
        }
        settle().await;
        assert_eq!(Seen::of(&seen.handled), 10_000, "with a capacity of 16");
    });
}

#[test]
fn do_send_to_a_dead_actor_is_silent() {
    on_one_thread(async {
        let seen = Seen::default();
        let addr = Plain::new(&seen).start();
        addr.send(Stop).await.unwrap();
        settle().await;
        // It returns (), and the lost message is counted and logged nowhere.
        addr.do_send(Count);
        settle().await;
        assert_eq!(Seen::of(&seen.handled), 0);
        assert!(matches!(addr.try_send(Count), Err(SendError::Closed(_))), "try_send would have said so");
    });
}

#[test]
fn try_send_sees_full_on_one_address_and_never_on_a_clone_per_message() {
    on_one_thread(async {
        let seen = Seen::default();
        let addr = Plain::create(|ctx: &mut Context<Plain>| {
            ctx.set_mailbox_capacity(1);
            Plain::new(&seen)
        });
        let mut full = 0;
        for _ in 0..100 {
            full += u64::from(matches!(addr.try_send(Count), Err(SendError::Full(_))));
        }
        assert!(full > 90, "one address is parked once it is over the capacity: {full}");
        let refused = (0..1000).filter(|_| addr.clone().try_send(Count).is_err()).count();
        assert_eq!(refused, 0, "every clone brings a place of its own");
        settle().await;
        assert_eq!(Seen::of(&seen.handled), 1100 - full);
    });
}

#[test]
fn send_bypasses_the_bound() {
    on_one_thread(async {
        let seen = Seen::default();
        let addr = Plain::create(|ctx: &mut Context<Plain>| {
            ctx.set_mailbox_capacity(1);
            Plain::new(&seen)
        });
        let mut asks: Vec<_> = (0..1000).map(|_| Box::pin(addr.send(Count))).collect();
        // Those that found the address parked hold a clone of it, and each clone has a place of its own.
        for ask in &mut asks {
            assert!(futures::poll!(ask).is_pending());
        }
        assert_eq!(Seen::of(&seen.handled), 0);
        settle().await;
        assert_eq!(Seen::of(&seen.handled), 1000, "all were in the mailbox at once, with a capacity of 1");
    });
}

#[test]
fn an_ask_without_an_asker_is_dropped_unhandled_even_if_it_is_a_command() {
    on_one_thread(async {
        let seen = Seen::default();
        let addr = Plain::new(&seen).start();
        drop(addr.send(Count));
        settle().await;
        assert_eq!(Seen::of(&seen.handled), 0);
        assert_eq!(addr.send(Count).await, Ok(1));
    });
}

#[test]
fn an_answer_that_never_comes_is_told_only_without_a_reason() {
    on_one_thread(async {
        let addr = Plain::default().start();
        let waiting = addr.send(Stop);
        let behind = addr.send(Count);
        assert_eq!(waiting.await, Ok(()));
        assert_eq!(behind.await, Err(MailboxError::Closed), "crashed, stopped or lost: all the same");
    });
}

#[test]
fn a_mailbox_is_drained_without_a_budget() {
    on_one_thread(async {
        let seen = Seen::default();
        let flooded = Plain::new(&seen).start();
        let sibling = Plain::default().start();
        for _ in 0..50_000 {
            flooded.do_send(Count);
        }
        assert_eq!(sibling.send(Count).await, Ok(1));
        assert_eq!(Seen::of(&seen.handled), 50_000, "the sibling had to wait for the whole flood");
    });
}

#[test]
fn an_address_reaches_only_the_context_it_was_made_from() {
    on_one_thread(async {
        let first = Context::<Plain>::new();
        let addr = first.address();
        let running = first.run(Plain::default());
        assert_eq!(addr, running);
        running.send(Stop).await.unwrap();
        settle().await;
        let _second = Plain::default().start();
        assert!(!addr.connected(), "a new context cannot be put behind an old address");
    });
}
