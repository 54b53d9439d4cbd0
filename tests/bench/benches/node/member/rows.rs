//! PURE: the figures of members as rows, each beside its goal.

use bench::{Row, Samples, Unit};

use super::Figures;
use crate::floor::Floor;
use crate::make::{Maker, at_most, beside, over};

/// All rows, with or without their figures.
pub fn rows(pods: usize, floor: &Floor, ours: Option<&Figures>, go: Option<&Figures>) -> Vec<Row> {
    let make = Maker { ours, go };
    let mut rows = single_pods(&make, floor);
    rows.extend(bursts(&make, floor, pods));
    rows.extend(idle(&make, floor, pods));
    rows.extend(restarts(&make, pods));
    rows.extend(process(&make, pods));
    rows
}

fn single_pods(make: &Maker<'_, Figures>, floor: &Floor) -> Vec<Row> {
    use Unit::Seconds;
    vec![
        over(
            make.row("one pod, API create to Ready, p50", Seconds, |f| f.ready_s.p50()),
            floor.start_s.p50(),
            "floor + 15 ms",
            |floor| floor + 0.015,
        ),
        beside(
            make.row("one pod, API create to Ready, p99", Seconds, |f| f.ready_s.p99()),
            floor.start_s.p99(),
        ),
        over(
            make.row("one pod, API delete to gone, p50", Seconds, |f| f.gone_s.p50()),
            floor.delete_s.p50(),
            "floor + 50 ms",
            |floor| floor + 0.050,
        ),
        beside(
            make.row("one pod, API delete to gone, p99", Seconds, |f| f.gone_s.p99()),
            floor.delete_s.p99(),
        ),
        at_most(make.row("exit written to the API, p50", Seconds, |f| f.exit_written_s.p50()), 0.05, "50 ms"),
        make.row("exit written to the API, worst", Seconds, |f| f.exit_written_s.p99()),
    ]
}

fn bursts(make: &Maker<'_, Figures>, floor: &Floor, pods: usize) -> Vec<Row> {
    use Unit::{Ratio, Seconds};
    let mean = |samples: &Samples| samples.mean();
    vec![
        over(
            make.row(format!("{pods} pods at once, all Ready"), Seconds, |f| Some(f.burst.as_ref()?.ready_s)),
            mean(&floor.burst_start_s),
            "1.05 x floor",
            |floor| floor * 1.05,
        ),
        over(
            make.row(format!("{pods} pods deleted at once, all gone"), Seconds, |f| {
                Some(f.deleted.as_ref()?.gone_s)
            }),
            mean(&floor.burst_delete_s),
            "1.1 x floor",
            |floor| floor * 1.1,
        ),
        at_most(
            make.row("kubelet CPU, both bursts", Seconds, |f| {
                Some(f.burst.as_ref()?.kubelet_cpu.own_s + f.deleted.as_ref()?.kubelet_cpu.own_s)
            }),
            0.45,
            "0.45 s",
        ),
        make.row("kubelet CPU, starts", Seconds, |f| Some(f.burst.as_ref()?.kubelet_cpu.own_s)),
        make.row("kubelet CPU, deletions", Seconds, |f| Some(f.deleted.as_ref()?.kubelet_cpu.own_s)),
        make.row("requests to the API server per pod started", Ratio, |f| {
            let burst = f.burst.as_ref()?;
            Some(burst.asked.count() as f64 / burst.pods.max(1) as f64)
        }),
        make.row("requests to the API server per pod deleted", Ratio, |f| {
            Some(f.deleted.as_ref()?.asked.count() as f64 / f.burst.as_ref()?.pods.max(1) as f64)
        }),
    ]
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
        make.row("requests to the API server per idle pod per minute", Unit::Ratio, |f| {
            Some(f.idle.as_ref()?.requests_per_pod_minute)
        }),
    ]
}

fn restarts(make: &Maker<'_, Figures>, pods: usize) -> Vec<Row> {
    use Unit::{Count, Seconds};
    vec![
        at_most(make.row("start to node Ready, p50", Seconds, |f| f.node_ready_s.p50()), 0.25, "0.25 s"),
        at_most(
            make.row(format!("3 SIGKILLs with {pods} pods: status writes"), Count, |f| {
                Some(f.restarts.as_ref()?.status_writes() as f64)
            }),
            0.0,
            "0",
        ),
        make.row(format!("3 SIGKILLs with {pods} pods: all requests"), Count, |f| {
            Some(f.restarts.as_ref()?.count() as f64)
        }),
        at_most(
            make.row(format!("SIGKILL with {pods} pods: start to a new pod Ready"), Seconds, |f| {
                f.restart_new_ready_s
            }),
            0.4,
            "0.4 s",
        ),
        at_most(make.row("containers replaced by all that", Count, |f| Some(f.replaced? as f64)), 0.0, "0"),
        at_most(
            make.row("API server back: to a new pod Ready", Seconds, |f| f.outage_new_ready_s),
            2.0,
            "2 s",
        ),
        make.row("API server back: requests until then", Count, |f| {
            Some(f.outage_asked.as_ref()?.count() as f64)
        }),
    ]
}

fn process(make: &Maker<'_, Figures>, pods: usize) -> Vec<Row> {
    use Unit::{Mebibytes, Megabytes};
    vec![
        at_most(make.row("RSS without pods", Mebibytes, |f| Some(f.memory_empty?.rss_mib)), 15.0, "15 MiB"),
        at_most(
            make.row(format!("RSS with {pods} idle pods"), Mebibytes, |f| {
                Some(f.idle.as_ref()?.memory?.rss_mib)
            }),
            25.0,
            "25 MiB",
        ),
        at_most(
            make.row("RSS, peak", Mebibytes, |f| {
                let peaks =
                    [f.idle.as_ref()?.memory?, f.deleted.as_ref().and_then(|d| d.memory).unwrap_or_default()];
                Some(peaks.iter().map(|memory| memory.peak_mib).fold(0.0, f64::max))
            }),
            30.0,
            "30 MiB",
        ),
        at_most(make.row("binary size", Megabytes, |f| f.binary_mb), 20.0, "20 MB"),
    ]
}
