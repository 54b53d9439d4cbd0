//! PURE: the rows of actors. Children are many, so those of a kind that are well share one row.

use std::collections::BTreeMap;

use pod_why::model::{Actor, Crash};

use super::text::{latency, neutralised};

/// The columns of an actor's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActorRow {
    /// The actor's name; for children that are well, their kind and number.
    pub name: String,
    /// The actor's state.
    pub state: String,
    /// Its incarnation and its restarts.
    pub lives: String,
    /// The waiting messages and the most that may wait.
    pub mailbox: String,
    /// 99th percentile of handling time.
    pub p99: String,
    /// Its last crash, and the pods that it has in quarantine.
    pub trouble: String,
    /// Whether the actor needs no attention.
    pub well: bool,
}

/// The rows of subsystems by name, then of their children: a summary per kind, and a row for each child that is not
/// well.
pub fn actor_rows(actors: &[Actor]) -> Vec<ActorRow> {
    let (children, subsystems): (Vec<&Actor>, Vec<&Actor>) =
        actors.iter().partition(|actor| actor.parent.is_some());
    let mut rows: Vec<ActorRow> = subsystems.iter().map(|actor| row(actor)).collect();
    let mut kinds: BTreeMap<&str, Vec<&Actor>> = BTreeMap::new();
    for child in children {
        kinds.entry(&child.kind).or_default().push(child);
    }
    for (kind, children) in kinds {
        rows.push(summary(kind, &children));
        rows.extend(children.iter().filter(|child| !child.is_well()).map(|child| row(child)));
    }
    rows
}

fn row(actor: &Actor) -> ActorRow {
    let crash = actor.last_crash.as_ref().map(Crash::line);
    let quarantined = actor.quarantined.iter().next().map(|(pod, panic)| match actor.quarantined.len() {
        1 => format!("leaves pod {pod} alone: {panic}"),
        pods => format!("leaves {pods} pods alone: {panic}"),
    });
    let trouble: Vec<String> = quarantined.into_iter().chain(crash).collect();
    ActorRow {
        name: neutralised(&actor.name),
        state: neutralised(&actor.state),
        lives: format!("{}/{}", actor.incarnation, actor.restarts),
        mailbox: format!("{}/{}", actor.mailbox_depth, actor.mailbox_bound),
        p99: latency(actor.handling_p99_us),
        trouble: neutralised(&trouble.join("; ")),
        well: actor.is_well(),
    }
}

fn summary(kind: &str, children: &[&Actor]) -> ActorRow {
    let mut states: BTreeMap<&str, usize> = BTreeMap::new();
    for child in children {
        *states.entry(&child.state).or_default() += 1;
    }
    let states: Vec<String> = states.iter().map(|(state, count)| format!("{count} {state}")).collect();
    let sum = |of: fn(&Actor) -> u64| children.iter().map(|child| of(child)).sum::<u64>();
    let most = |of: fn(&Actor) -> u64| children.iter().map(|child| of(child)).max().unwrap_or(0);
    ActorRow {
        name: format!("{} ×{}", neutralised(kind), children.len()),
        state: neutralised(&states.join(", ")),
        lives: format!("-/{}", sum(|child| child.restarts)),
        mailbox: format!("{}/{}", sum(|child| child.mailbox_depth), sum(|child| child.mailbox_bound)),
        p99: latency(most(|child| child.handling_p99_us)),
        trouble: String::new(),
        well: children.iter().all(|child| child.is_well()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn child(name: &str, state: &str) -> Actor {
        Actor {
            name: format!("PodWorker/{name}"),
            kind: "PodWorker".to_owned(),
            parent: Some("PodWorkerPool".to_owned()),
            state: state.to_owned(),
            incarnation: 1,
            mailbox_bound: 64,
            handling_p99_us: 8,
            ..Actor::default()
        }
    }

    #[test]
    fn children_are_summed_up_unless_one_is_not_well() {
        let mut dormant = child("c", "dormant");
        dormant.restarts = 5;
        dormant.last_crash =
            Some(Crash { handling: "SyncPod".to_owned(), reason: "boom\x1b".to_owned(), place: None });
        let rows = actor_rows(&[child("a", "running"), child("b", "running"), dormant]);
        let said: Vec<_> =
            rows.iter().map(|row| (&*row.name, &*row.state, &*row.lives, &*row.trouble)).collect();
        assert_eq!(
            said,
            [
                ("PodWorker ×3", "1 dormant, 2 running", "-/5", ""),
                ("PodWorker/c", "dormant", "1/5", "SyncPod: boom␛")
            ]
        );
        assert_eq!(rows.iter().map(|row| row.well).collect::<Vec<_>>(), [false, false]);
        assert_eq!(actor_rows(&[child("a", "running")]).len(), 1);
    }

    #[test]
    fn a_quarantined_pod_is_named() {
        let mut actor = Actor { name: "Pleg".to_owned(), state: "running".to_owned(), ..Actor::default() };
        actor.quarantined.insert("uid-1".to_owned(), "boom at a.rs:1:2".to_owned());
        let rows = actor_rows(&[actor]);
        assert_eq!(rows[0].trouble, "leaves pod uid-1 alone: boom at a.rs:1:2");
        assert!(!rows[0].well);
    }
}
