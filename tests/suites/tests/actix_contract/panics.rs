//! The effects of a panic on a plain actix actor.

use std::time::Duration;

use actix::{Actor, Addr, MailboxError, Supervisor};
use actix_rt::{Arbiter, System};

use crate::world::{Count, Panic, Plain, Seen, Stop, on_one_thread, settle};

#[test]
fn the_supervisor_reacts_to_a_stop_and_keeps_the_state() {
    on_one_thread(async {
        let seen = Seen::default();
        let plain = Plain::new(&seen);
        let addr = Supervisor::start(move |_| plain);
        assert_eq!(addr.send(Count).await, Ok(1));
        addr.send(Stop).await.unwrap();
        settle().await;
        assert_eq!(addr.send(Count).await, Ok(2), "restarted in place: no factory, no fresh state");
        assert_eq!((Seen::of(&seen.restarting), Seen::of(&seen.started)), (1, 2));
    });
}

#[test]
fn the_supervisor_does_not_survive_a_panic_and_nobody_is_told() {
    on_one_thread(async {
        let seen = Seen::default();
        let plain = Plain::new(&seen);
        let addr: Addr<Plain> = Supervisor::start(move |_| plain);
        assert_eq!(addr.send(Count).await, Ok(1));
        let lost = addr.send(Panic);
        let waiting = addr.send(Count);
        let silent = addr.clone();
        silent.do_send(Count);
        assert_eq!(lost.await, Err(MailboxError::Closed));
        assert_eq!(waiting.await, Err(MailboxError::Closed), "what waited in the mailbox is gone too");
        settle().await;
        assert!(!addr.connected(), "the address is dead for good");
        assert_eq!(addr.send(Count).await, Err(MailboxError::Closed));
        assert_eq!(Seen::of(&seen.restarting), 0, "restarting() is never called");
        assert_eq!(Seen::of(&seen.handled), 1);
    });
}

#[test]
fn stopping_and_stopped_run_on_the_panicked_state() {
    on_one_thread(async {
        let seen = Seen::default();
        let addr = Plain::new(&seen).start();
        assert_eq!(addr.send(Count).await, Ok(1));
        assert!(addr.send(Panic).await.is_err());
        settle().await;
        assert_eq!((Seen::of(&seen.stopping), Seen::of(&seen.stopped)), (1, 1));
        assert_eq!(Seen::of(&seen.stopped_at), 1, "stopped() saw the state that had panicked");
    });
}

#[test]
fn an_arbiter_survives_the_panic_of_one_of_its_actors() {
    System::new().block_on(async {
        let arbiter = Arbiter::new();
        let thread = |addr: Addr<Plain>| async move { addr.send(Count).await };
        let seen = Seen::default();
        let one = seen.clone();
        let broken = Plain::start_in_arbiter(&arbiter.handle(), move |_| Plain::new(&one));
        let two = seen.clone();
        let sibling = Plain::start_in_arbiter(&arbiter.handle(), move |_| Plain::new(&two));
        assert!(broken.send(Panic).await.is_err());
        assert_eq!(thread(sibling).await, Ok(1), "the sibling on the same thread goes on");
        let later = Plain::start_in_arbiter(&arbiter.handle(), move |_| Plain::new(&seen));
        assert_eq!(thread(later).await, Ok(1), "the thread takes new actors");
        assert!(!broken.connected());
        arbiter.stop();
        arbiter.join().unwrap();
    });
}

#[test]
fn a_registry_service_that_panicked_is_handed_out_dead() {
    #[derive(Default)]
    struct Service;
    impl Actor for Service {
        type Context = actix::Context<Self>;
    }
    impl actix::Supervised for Service {}
    impl actix::SystemService for Service {}
    impl actix::Handler<Panic> for Service {
        type Result = ();
        fn handle(&mut self, _: Panic, _: &mut Self::Context) {
            panic!("on demand");
        }
    }
    System::new().block_on(async {
        use actix::SystemService;
        assert!(Service::from_registry().send(Panic).await.is_err());
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(!Service::from_registry().connected());
    });
}
