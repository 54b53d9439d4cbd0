//! The outages.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use serde_json::json;
use testkit::process::eventually;

use crate::Alone;
use crate::audit::Mark;
use crate::cri::NAMESPACE_LABEL;
use crate::member::{Member, OwnPod, named};
use crate::node::{LATER, SOON};
use crate::setting::Setting;
use crate::spec::{containers, sleeper};

pub const ALL: &[(&str, Alone)] = &[
    ("an_api_server_that_is_stopped_and_started_harms_nothing", stopped),
    ("an_api_server_that_is_frozen_harms_nothing", frozen),
    ("an_api_server_that_is_put_back_to_an_earlier_time_is_believed", put_back),
];

/// The most requests of one kind in a minute by a node with few pods; renewals of the lease are six.
const A_MINUTE_MAX: f64 = 40.0;

fn outage() -> Duration {
    let asked = std::env::var("UNDERSTUDY_API_OUTAGE_SECONDS").ok();
    let seconds = asked.map(|text| text.parse().expect("UNDERSTUDY_API_OUTAGE_SECONDS is a number"));
    Duration::from_secs(seconds.unwrap_or(25))
}

/// Brings the API server back by this verb, also when the case fails; does nothing if the server is back already.
struct Back<'a>(&'a Setting, &'a str);

impl Drop for Back<'_> {
    fn drop(&mut self) {
        self.0.control_plane(self.1, &[]);
    }
}

/// The running containers of the node's pods, and since when they run.
fn running(member: &Member) -> BTreeMap<String, i64> {
    let all = member.node.cri.running(NAMESPACE_LABEL, &member.name);
    let started = |id: &str| member.node.cri.status(id).map_or(0, |status| status.started_at);
    all.into_iter().map(|container| (container.id.clone(), started(&container.id))).collect()
}

/// Prints the requests since the mark, and asserts that each kind is within its bound.
fn assert_calm(member: &Member, what: &str, since: &Mark, began: Instant) {
    let minutes = (began.elapsed().as_secs_f64() / 60.0).max(1.0);
    let requests = member.requests(since);
    println!("{what}: requests over {:.1} min, by the audit log", began.elapsed().as_secs_f64() / 60.0);
    for (name, count) in &requests.0 {
        println!("  {name:28} {count}");
    }
    let bound = A_MINUTE_MAX * minutes;
    let wild: Vec<_> = requests.0.iter().filter(|(_, count)| **count as f64 > bound).collect();
    assert!(wild.is_empty(), "more than {bound:.0}: {wild:?}");
}

/// Creates a pod, and asserts how long it takes to be Ready at the API server.
fn serves<'a>(member: &'a Member, what: &str) -> OwnPod<'a> {
    let begun = Instant::now();
    let pod = member.pod("new", containers([sleeper("main")]));
    pod.wait("Ready", LATER, |pod| pod.is_ready());
    println!("{what}: a new pod was Ready after {:.2} s", begun.elapsed().as_secs_f64());
    pod
}

/// The API server goes away and comes back by these verbs; everything that runs goes on.
fn goes_away(setting: &Arc<Setting>, case: &str, away: &str, back: &str) {
    let member = Member::alone(setting, case);
    let pods = [0, 1].map(|_| member.pod("web", containers([sleeper("main")])));
    let fixed = member.node.pod("fixed", containers([sleeper("main")]));
    let mirror = member.named_pod(fixed.ready().name().to_owned());
    for pod in pods.iter().chain([&mirror]) {
        pod.wait("Ready", LATER, |pod| pod.is_ready());
    }
    let before = running(&member);
    assert_eq!(before.len(), 3);
    let (mark, began) = (member.mark(), Instant::now());
    let renewed = member.renewed().expect("a lease");

    let returns = Back(setting, back);
    setting.control_plane(away, &[]);
    let end = Instant::now() + outage();
    while Instant::now() < end {
        assert_eq!(running(&member), before, "{away}");
        std::thread::sleep(Duration::from_secs(1));
    }
    // Static pods need no API server.
    let alone = member.node.pod("alone", containers([sleeper("main")]));
    alone.ready();
    setting.control_plane(back, &[]);
    let new = serves(&member, &format!("after {} s {away}", outage().as_secs()));
    drop(returns);
    member.becomes_ready();
    eventually("the lease is renewed", SOON, || match member.renewed()? {
        now if now != renewed => Ok(()),
        now => Err(now),
    });
    let told = member.named_pod(alone.ready().name().to_owned());
    told.wait("its mirror is Ready", LATER, |pod| pod.is_ready());
    let after = running(&member);
    for (id, started) in &before {
        assert_eq!(after.get(id), Some(started), "container {id} after {away}");
    }
    assert_calm(&member, away, &mark, began);
    let view = new.look().expect("it is there");
    new.delete(None);
    new.gone(&view);
}

fn stopped(setting: &Arc<Setting>) {
    goes_away(setting, "stopped", "stop", "start");
}

fn frozen(setting: &Arc<Setting>) {
    goes_away(setting, "frozen", "pause", "resume");
}

fn put_back(setting: &Arc<Setting>) {
    let member = Member::alone(setting, "putback");
    let web = member.pod("web", containers([sleeper("main")]));
    let old = member.pod("old", containers([sleeper("main")]));
    let (_, old_view) = (web.ready(), old.ready());
    let returns = Back(setting, "start");
    setting.control_plane("backup", &[]);
    eventually("the API server is there again", SOON, || member.pods().map(drop));
    let kept = running(&member);

    old.delete(None);
    old.gone(&old_view);
    let late = serves(&member, "after the backup");
    let late_view = late.look().expect("it is there");
    // Versions far beyond those of the backup.
    for n in 0..200 {
        let name = format!("busy-{n}");
        member.api.create::<ConfigMap>(named(&member, &name, json!({"data": {"n": name}})));
    }
    let (mark, began) = (member.mark(), Instant::now());
    setting.control_plane("restore", &[]);
    eventually("the old pod runs again", LATER, || {
        let pod = old.look()?;
        let of_before = pod.uid() == old_view.uid() && pod.is_ready();
        if of_before && !old.file.running(old_view.uid()).is_empty() {
            Ok(())
        } else {
            Err(pod.status().to_string())
        }
    });
    late.file.gone(&late_view);
    drop(returns);
    member.becomes_ready();
    let web_id = web.wait("Ready", LATER, |pod| pod.is_ready()).container_id("main").to_owned();
    let web_id = web_id.trim_start_matches("containerd://");
    assert_eq!(running(&member).get(web_id), kept.get(web_id), "it has not noticed");
    // Watches work, although versions are below those from before.
    let new = serves(&member, "after being put back");
    let view = new.look().expect("it is there");
    new.delete(None);
    new.gone(&view);
    member.api.merge::<Pod>(member.ns(), web.name(), json!({"metadata": {"labels": {"a": "b"}}}));
    assert_calm(&member, "put back", &mark, began);
}
