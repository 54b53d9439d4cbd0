use super::*;

const A: &str = "/registry/a.sock";

fn sockets(made: &[(&str, u64)]) -> Sockets {
    let identity = |inode| Identity { device: 1, inode, made_ns: 0 };
    made.iter().map(|(path, inode)| ((*path).to_owned(), identity(*inode))).collect()
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn facts(kind: PluginKind) -> PluginFacts {
    PluginFacts { kind: kind.word().into(), name: "d".into(), endpoint: "/d.sock".into(), versions: vec![] }
}

/// The only step, which asks.
fn asked(steps: &[Step]) -> Try {
    match steps {
        [Step::Ask(of)] => of.clone(),
        other => panic!("{other:?}"),
    }
}

fn offered(steps: &[Step]) -> Try {
    match steps {
        [Step::Offer(of, PluginKind::Csi, _)] => of.clone(),
        other => panic!("{other:?}"),
    }
}

/// A plugin that is registered with a follower.
fn registered() -> (Registrations, Try) {
    let mut all = Registrations::new([PluginKind::Csi]);
    assert_eq!(all.followed(PluginKind::Csi), []);
    let of = asked(&all.seen(&sockets(&[(A, 1)]), ms(0)));
    assert_eq!(offered(&all.told(&of, Ok(facts(PluginKind::Csi)), ms(1))), of);
    assert_eq!(all.judged(&of, Verdict::Accepted, ms(2)), [Step::Tell(of.clone(), Ok(()))]);
    assert_eq!(all.notified(&of, Ok(()), ms(3)), []);
    (all, of)
}

fn gone() -> Step {
    Step::Gone { kind: PluginKind::Csi, facts: facts(PluginKind::Csi), socket: A.into() }
}

#[test]
fn a_plugin_is_asked_offered_and_told_and_then_left_alone() {
    let (mut all, _) = registered();
    assert_eq!(all.seen(&sockets(&[(A, 1)]), ms(9)), []);
    assert_eq!((all.tick(ms(1_000_000)), all.next()), (vec![], None));
}

#[test]
fn a_socket_that_goes_is_a_plugin_that_is_gone() {
    let (mut all, _) = registered();
    assert_eq!(all.seen(&Sockets::new(), ms(9)), [gone()]);
    assert_eq!(all.seen(&Sockets::new(), ms(10)), []);
}

#[test]
fn a_socket_that_is_made_anew_is_gone_before_it_is_asked() {
    let (mut all, first) = registered();
    let steps = all.seen(&sockets(&[(A, 2)]), ms(2000));
    assert_eq!(steps[0], gone());
    let second = asked(&steps[1..]);
    assert!(second.number > first.number);
    // Late answers of the first socket change nothing.
    assert_eq!(all.notified(&first, Err("late".into()), ms(2001)), []);
    assert_eq!(all.told(&first, Ok(facts(PluginKind::Csi)), ms(2001)), []);
    offered(&all.told(&second, Ok(facts(PluginKind::Csi)), ms(2002)));
}

#[test]
fn a_plugin_that_makes_its_socket_anew_all_the_time_is_asked_once_a_second() {
    let mut all = Registrations::new([PluginKind::Csi]);
    let mut asks = Vec::new();
    for tenth in 0..50 {
        let now = ms(tenth * 100);
        let steps = all.seen(&sockets(&[(A, tenth)]), now);
        asks.extend(steps.iter().filter(|step| matches!(step, Step::Ask(_))).map(|_| now.as_millis()));
    }
    assert_eq!(asks, [0, 1000, 2000, 3000, 4000]);
    let other = all.seen(&sockets(&[("/registry/b.sock", 1)]), ms(4950));
    assert_eq!(other.len(), 1, "another plugin waits for nothing: {other:?}");
    asked(&other);
}

#[test]
fn a_socket_that_goes_while_the_follower_decides_is_gone_for_the_follower() {
    let mut all = Registrations::new([PluginKind::Csi]);
    all.followed(PluginKind::Csi);
    let of = asked(&all.seen(&sockets(&[(A, 1)]), ms(0)));
    offered(&all.told(&of, Ok(facts(PluginKind::Csi)), ms(1)));
    assert_eq!(all.seen(&Sockets::new(), ms(2)), [gone()]);
    assert_eq!(all.judged(&of, Verdict::Accepted, ms(3)), []);
}

#[test]
fn a_plugin_that_does_not_answer_is_asked_again_with_upstreams_back_off() {
    let mut all = Registrations::new([PluginKind::Csi]);
    let mut of = asked(&all.seen(&sockets(&[(A, 1)]), ms(0)));
    let mut waits = Vec::new();
    for _ in 0..10 {
        let now = ms(of.number * 1_000_000);
        assert_eq!(all.told(&of, Err("refused".into()), now), []);
        let until = all.next().expect("it waits");
        assert_eq!(all.tick(until - ms(1)), []);
        waits.push((until - now).as_millis());
        of = asked(&all.tick(until));
    }
    assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 16000, 32000, 64000, 122_000, 122_000]);
}

#[test]
fn a_kind_that_is_served_waits_for_its_follower_and_another_is_refused() {
    let mut all = Registrations::new([PluginKind::Csi]);
    let of = asked(&all.seen(&sockets(&[(A, 1)]), ms(0)));
    assert_eq!(all.told(&of, Ok(facts(PluginKind::Csi)), ms(1)), []);
    assert_eq!((all.tick(ms(1_000_000)), all.next()), (vec![], None));
    offered(&all.followed(PluginKind::Csi));

    for word in ["DRAPlugin", "Other"] {
        let mut all = Registrations::new([PluginKind::Csi]);
        let of = asked(&all.seen(&sockets(&[(A, 1)]), ms(0)));
        let other = PluginFacts { kind: word.into(), ..facts(PluginKind::Csi) };
        let error =
            format!("RegisterPlugin error -- no handler registered for plugin type: {word} at socket {A}");
        assert_eq!(all.told(&of, Ok(other), ms(1)), [Step::Tell(of.clone(), Err(error))]);
        assert_eq!(all.notified(&of, Ok(()), ms(2)), []);
        assert_eq!(all.next(), Some(ms(502)), "it is asked again");
    }
}

#[test]
fn the_next_follower_is_offered_what_the_last_one_had() {
    let (mut all, first) = registered();
    all.unfollowed(PluginKind::Csi);
    let second = offered(&all.followed(PluginKind::Csi));
    assert!(second.number > first.number);
    assert_eq!(all.judged(&second, Verdict::Accepted, ms(9)), [Step::Tell(second.clone(), Ok(()))]);
    // Also when there was no time to notice that the last one went, and while the plugin is being told.
    let third = offered(&all.followed(PluginKind::Csi));
    assert_eq!(all.notified(&second, Ok(()), ms(10)), []);
    assert_eq!(all.judged(&third, Verdict::Accepted, ms(11)), [Step::Tell(third, Ok(()))]);
    assert_eq!(all.followed(PluginKind::Device), [], "another kind");
}

#[test]
fn a_refusal_is_told_in_upstreams_words_and_tried_again() {
    for (verdict, words) in [
        (Verdict::Invalid("x".into()), "RegisterPlugin error -- plugin validation failed with err: x"),
        (Verdict::Failed("x".into()), "RegisterPlugin error -- plugin registration failed with err: x"),
    ] {
        let mut all = Registrations::new([PluginKind::Csi]);
        all.followed(PluginKind::Csi);
        let of = asked(&all.seen(&sockets(&[(A, 1)]), ms(0)));
        offered(&all.told(&of, Ok(facts(PluginKind::Csi)), ms(1)));
        assert_eq!(all.judged(&of, verdict, ms(2)), [Step::Tell(of.clone(), Err(words.to_owned()))]);
        assert_eq!(all.notified(&of, Err("it did not listen".into()), ms(3)), []);
        assert_eq!(all.next(), Some(ms(503)));
    }
}

#[test]
fn an_offer_without_an_answer_is_made_again() {
    let mut all = Registrations::new([PluginKind::Csi]);
    all.followed(PluginKind::Csi);
    let of = asked(&all.seen(&sockets(&[(A, 1)]), ms(0)));
    offered(&all.told(&of, Ok(facts(PluginKind::Csi)), ms(1)));
    assert_eq!(all.judged(&of, Verdict::Unanswered, ms(2)), []);
    asked(&all.tick(ms(502)));
}

#[test]
fn a_plugin_that_cannot_be_told_is_taken_back() {
    let mut all = Registrations::new([PluginKind::Csi]);
    all.followed(PluginKind::Csi);
    let of = asked(&all.seen(&sockets(&[(A, 1)]), ms(0)));
    offered(&all.told(&of, Ok(facts(PluginKind::Csi)), ms(1)));
    all.judged(&of, Verdict::Accepted, ms(2));
    assert_eq!(all.notified(&of, Err("broken".into()), ms(3)), [gone()]);
    assert_eq!(all.next(), Some(ms(503)));
}

#[test]
fn an_endpoint_that_is_not_told_is_the_socket_itself() {
    let mut all = Registrations::new([PluginKind::Device]);
    all.followed(PluginKind::Device);
    let of = asked(&all.seen(&sockets(&[(A, 1)]), ms(0)));
    let plain = PluginFacts { endpoint: String::new(), ..facts(PluginKind::Device) };
    let steps = all.told(&of, Ok(plain), ms(1));
    let [Step::Offer(_, PluginKind::Device, facts)] = steps.as_slice() else { panic!("{steps:?}") };
    assert_eq!(facts.endpoint, A);
}

#[test]
fn sockets_beyond_the_bound_are_passed_over() {
    let many: Sockets =
        (0..SOCKETS_MAX + 9).map(|at| (format!("/registry/{at}"), Identity::default())).collect();
    let mut all = Registrations::new([]);
    assert_eq!(all.seen(&many, ms(0)).len(), SOCKETS_MAX);
}
