//! PURE: the figures as rows, each beside its goal.

use std::collections::BTreeMap;

use bench::{Row, Samples, Unit};

use crate::floor::Floor;
use crate::make::{Maker, at_most, beside, over};
use crate::scenario::Figures;
use crate::scrape;

/// All rows, with or without their figures.
pub fn rows(pods: usize, floor: &Floor, ours: Option<&Figures>, go: Option<&Figures>) -> Vec<Row> {
    let make = Maker { ours, go };
    let mut rows = single_pods(&make, floor);
    rows.extend(bursts(&make, floor, pods));
    rows.extend(idle(&make, floor, pods));
    rows.extend(scrape::rows(&make, pods));
    rows.extend(process(&make, pods));
    rows
}

fn single_pods(make: &Maker<'_, Figures>, floor: &Floor) -> Vec<Row> {
    use Unit::Seconds;
    let start = floor.start_s.p50();
    let delete = floor.delete_s.p50();
    vec![
        over(
            make.row("one pod, manifest to Ready, p50", Seconds, |f| f.ready_s.p50()),
            start,
            "floor + 15 ms",
            |floor| floor + 0.015,
        ),
        beside(
            make.row("one pod, manifest to Ready, p99", Seconds, |f| f.ready_s.p99()),
            floor.start_s.p99(),
        ),
        beside(make.row("one pod, manifest to started, p50", Seconds, |f| f.started_s.p50()), start),
        over(
            make.row("one pod, delete to gone, p50", Seconds, |f| f.gone_s.p50()),
            delete,
            "floor + 50 ms",
            |floor| floor + 0.050,
        ),
        beside(make.row("one pod, delete to gone, p99", Seconds, |f| f.gone_s.p99()), floor.delete_s.p99()),
        make.row("one pod, delete to stopped, p50", Seconds, |f| f.stopped_s.p50()),
        at_most(make.row("exit to /pods, p50", Seconds, |f| f.exit_seen_s.p50()), 0.050, "50 ms"),
        make.row("exit to /pods, worst", Seconds, |f| f.exit_seen_s.p99()),
    ]
}

fn bursts(make: &Maker<'_, Figures>, floor: &Floor, pods: usize) -> Vec<Row> {
    use Unit::Seconds;
    let mean = |samples: &Samples| samples.mean();
    let cpu = |bursts: &[crate::process::RuntimeCpu], part: fn(&crate::process::RuntimeCpu) -> f64| {
        bursts.first().map(part)
    };
    vec![
        over(
            make.row(format!("{pods} pods at once, all Ready"), Seconds, |f| f.burst.as_ref()?.ready_s),
            mean(&floor.burst_start_s),
            "1.05 x floor",
            |floor| floor * 1.05,
        ),
        beside(
            make.row(format!("{pods} pods at once, all started"), Seconds, |f| {
                Some(f.burst.as_ref()?.started_s)
            }),
            mean(&floor.burst_start_s),
        ),
        over(
            make.row(format!("{pods} pods deleted at once, all gone"), Seconds, |f| {
                f.deleted.as_ref()?.gone_s
            }),
            mean(&floor.burst_delete_s),
            "1.1 x floor",
            |floor| floor * 1.1,
        ),
        make.row(format!("{pods} pods deleted at once, all stopped"), Seconds, |f| {
            Some(f.deleted.as_ref()?.stopped_s)
        }),
        at_most(
            make.row("kubelet CPU, both bursts", Seconds, |f| {
                Some(f.burst.as_ref()?.kubelet_cpu.own_s + f.deleted.as_ref()?.kubelet_cpu.own_s)
            }),
            0.45,
            "0.45 s",
        ),
        make.row("kubelet CPU, starts", Seconds, |f| Some(f.burst.as_ref()?.kubelet_cpu.own_s)),
        make.row("kubelet CPU, deletions", Seconds, |f| Some(f.deleted.as_ref()?.kubelet_cpu.own_s)),
        beside(
            make.row("containerd CPU, starts", Seconds, |f| {
                Some(f.burst.as_ref()?.runtime_cpu.containerd.own_s)
            }),
            cpu(&floor.burst_start_cpu, |cpu| cpu.containerd.own_s),
        ),
        beside(
            make.row("its children's CPU (CNI, shims' starters), starts", Seconds, |f| {
                Some(f.burst.as_ref()?.runtime_cpu.containerd.children_s)
            }),
            cpu(&floor.burst_start_cpu, |cpu| cpu.containerd.children_s),
        ),
        beside(
            make.row("shims' and runc's CPU, starts", Seconds, |f| {
                Some(f.burst.as_ref()?.runtime_cpu.shims.all_s())
            }),
            cpu(&floor.burst_start_cpu, |cpu| cpu.shims.all_s()),
        ),
        make.row("calls to the runtime per pod started", Unit::Ratio, |f| {
            per_pod(f, &f.burst.as_ref()?.calls)
        }),
        make.row("calls to the runtime per pod deleted", Unit::Ratio, |f| {
            per_pod(f, &f.deleted.as_ref()?.calls)
        }),
    ]
}

fn per_pod(figures: &Figures, calls: &BTreeMap<String, f64>) -> Option<f64> {
    let pods = figures.burst.as_ref()?.pods.max(1);
    (!calls.is_empty()).then(|| calls.values().sum::<f64>() / pods as f64)
}

fn idle(make: &Maker<'_, Figures>, floor: &Floor, pods: usize) -> Vec<Row> {
    use Unit::Cores;
    vec![
        at_most(
            make.row(format!("{pods} idle pods, kubelet CPU"), Cores, |f| {
                Some(f.idle.as_ref()?.kubelet_cores)
            }),
            0.004,
            "0.004 core",
        ),
        over(
            make.row(format!("{pods} idle pods, containerd CPU"), Cores, |f| {
                Some(f.idle.as_ref()?.containerd_cores)
            }),
            floor.idle.map(|idle| idle.containerd_cores),
            "floor + 0.008 core",
            |floor| floor + 0.008,
        ),
        beside(
            make.row(format!("{pods} idle pods, shims' CPU"), Cores, |f| Some(f.idle.as_ref()?.shims_cores)),
            floor.idle.map(|idle| idle.shims_cores),
        ),
        make.row(format!("{pods} idle pods, calls to the runtime"), Unit::PerSecond, |f| {
            Some(f.idle.as_ref()?.calls_per_s.values().sum())
        }),
    ]
}

fn process(make: &Maker<'_, Figures>, pods: usize) -> Vec<Row> {
    use Unit::{Count, Mebibytes, Megabytes, Seconds};
    vec![
        at_most(make.row("RSS without pods", Mebibytes, |f| Some(f.memory_empty?.rss_mib)), 15.0, "15 MiB"),
        at_most(
            make.row(format!("RSS with {pods} idle pods"), Mebibytes, |f| {
                Some(f.idle.as_ref()?.memory?.rss_mib)
            }),
            25.0,
            "25 MiB",
        ),
        make.row(format!("RSS with {pods} pods after scrapes"), Mebibytes, |f| {
            Some(f.memory_scraped?.rss_mib)
        }),
        make.row(format!("Pss with {pods} idle pods"), Mebibytes, |f| Some(f.idle.as_ref()?.memory?.pss_mib)),
        at_most(
            make.row("RSS, peak", Mebibytes, |f| {
                let idle = f.idle.as_ref()?.memory?.peak_mib;
                Some(
                    f.deleted
                        .as_ref()
                        .and_then(|deleted| deleted.memory)
                        .map_or(idle, |m| m.peak_mib.max(idle)),
                )
            }),
            30.0,
            "30 MiB",
        ),
        at_most(
            make.row("start to healthz ok, no pods, p50", Seconds, |f| f.healthy_s.p50()),
            0.25,
            "0.25 s",
        ),
        make.row(format!("SIGKILL with {pods} pods: start to healthz ok"), Seconds, |f| {
            Some(f.killed.as_ref()?.healthy_s)
        }),
        make.row(format!("SIGKILL with {pods} pods: start to all Ready"), Seconds, |f| {
            f.killed.as_ref()?.ready_s
        }),
        at_most(
            make.row(format!("SIGKILL with {pods} pods: start to a new pod Ready"), Seconds, |f| {
                f.killed.as_ref()?.new_ready_s
            }),
            0.4,
            "0.4 s",
        ),
        make.row(format!("SIGKILL with {pods} pods: start to a new pod started"), Seconds, |f| {
            Some(f.killed.as_ref()?.new_started_s)
        }),
        at_most(
            make.row("containers replaced or restarted by it", Count, |f| {
                let killed = f.killed.as_ref()?;
                Some(killed.replaced as f64 + f64::from(killed.restarts))
            }),
            0.0,
            "0",
        ),
        at_most(make.row("binary size", Megabytes, |f| f.binary_mb), 20.0, "20 MB"),
    ]
}
