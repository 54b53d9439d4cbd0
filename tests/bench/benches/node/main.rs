//! A whole node on a real runtime, measured beside its floor: the same calls to the same runtime without a kubelet.
//! With a control plane the node is a member of a cluster; without a control plane it has static pods.
//!
//! `make bench` sets everything up; see `tests/env/run-bench` for what the environment may say. Prints one table and
//! writes every figure as JSON. The exit code is 1 when a figure could not be had, not when a goal was missed.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a benchmark measures real time on a real machine"
)]

mod error;
mod floor;
mod http;
mod kubelet;
mod make;
mod member;
mod pods;
mod process;
mod rows;
mod runtime;
mod scenario;
mod scrape;
mod settings;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use bench::{Row, table};
use serde_json::{Value, json};

use crate::error::BenchError;
use crate::floor::Floor;
use crate::kubelet::Kubelet;
use crate::runtime::Observer;
use crate::scenario::{Figures, Manners, progress};
use crate::settings::{Cluster, Settings};

fn main() -> ExitCode {
    let settings = match Settings::from_env() {
        Ok(settings) => settings,
        Err(missing) => {
            eprintln!("skipped: bench node needs a container runtime ({missing}): make bench sets one up");
            return ExitCode::SUCCESS;
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let done = runtime
        .map_err(BenchError::io("start", "the measuring runtime"))
        .and_then(|runtime| runtime.block_on(run(&settings)));
    match done {
        Ok(failures) if failures.is_empty() => ExitCode::SUCCESS,
        Ok(failures) => {
            for failure in failures {
                eprintln!("FAILED: {failure}");
            }
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("FAILED: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Half of the floor is measured before the kubelets and half after them: the machine's own pace may change meanwhile.
async fn run(settings: &Settings) -> Result<Vec<String>, BenchError> {
    let observer = Observer::new(settings)?;
    let load_before = process::load_average();
    let mut floor = Floor::default();
    let rounds = settings.rounds.div_ceil(2);
    progress("floor");
    floor::measure(settings, &observer, rounds, &mut floor).await?;

    let measured = match &settings.cluster {
        None => alone(settings, &observer).await,
        Some(cluster) => members(settings, cluster, &observer).await,
    };

    progress("floor again");
    floor::measure(settings, &observer, settings.rounds - rounds, &mut floor).await?;
    report(settings, load_before, &floor, measured)
}

type MakeRows = Box<dyn FnOnce(&Floor) -> Vec<Row>>;

/// The figures of the kubelets.
struct Measured {
    /// Makes the rows, once the floor is known.
    rows: MakeRows,
    ours: Value,
    go: Value,
    failures: Vec<String>,
}

fn report(
    settings: &Settings,
    load_before: f64,
    floor: &Floor,
    measured: Measured,
) -> Result<Vec<String>, BenchError> {
    let rows = (measured.rows)(floor);
    let all = json!({
        "settings": settings,
        "load_average_before": load_before,
        "rows": rows,
        "floor": floor,
        "ours": measured.ours,
        "go": measured.go,
    });
    let text = format!("{all:#}\n");
    std::fs::write(&settings.json, text).map_err(BenchError::io("write", &settings.json))?;
    let what = if settings.cluster.is_some() { "cluster" } else { "node" };
    println!("\n{what}: {} pods, containerd {}", settings.pods, settings.containerd_version);
    println!("load of the machine when it began: {load_before:.1}; a busy one says little\n");
    print!("{}", table(&rows));
    println!("\nall figures: {}", settings.json.display());
    Ok(measured.failures)
}

/// Kubelets with static pods.
async fn alone(settings: &Settings, observer: &Observer) -> Measured {
    let patient = Manners { gone_within: Duration::from_secs(60), ready_within: Duration::from_secs(45) };
    let ours = measure(settings, observer, "understudy", settings.kubelet.as_deref(), patient).await;
    let hasty = Manners { gone_within: Duration::ZERO, ready_within: Duration::from_secs(10) };
    let go = measure(settings, observer, "go", settings.go_kubelet.as_deref(), hasty).await;
    let of =
        |figures: &Option<Figures>| figures.as_ref().map_or(&[][..], |figures| &figures.failures).to_vec();
    let failures = failures(of(&ours), of(&go));
    let (shown, shown_go) = (json!(ours), json!(go));
    let pods = settings.pods;
    let rows = Box::new(move |floor: &Floor| rows::rows(pods, floor, ours.as_ref(), go.as_ref()));
    Measured { rows, ours: shown, go: shown_go, failures }
}

/// Members of a cluster.
async fn members(settings: &Settings, cluster: &Cluster, observer: &Observer) -> Measured {
    let measure = async |name: &str, program: Option<&Path>| {
        let program = program?;
        eprintln!("{name}: {}", program.display());
        let mut figures = member::measure(settings, cluster, observer, name, program).await;
        figures.binary_mb = size_mb(program);
        Some(figures)
    };
    let ours = measure("understudy", settings.kubelet.as_deref()).await;
    let go = measure("go", settings.go_kubelet.as_deref()).await;
    let of = |figures: &Option<member::Figures>| {
        figures.as_ref().map_or(&[][..], |figures| &figures.failures).to_vec()
    };
    let failures = failures(of(&ours), of(&go));
    let (shown, shown_go) = (json!(ours), json!(go));
    let pods = settings.pods;
    let rows = Box::new(move |floor: &Floor| member::rows::rows(pods, floor, ours.as_ref(), go.as_ref()));
    Measured { rows, ours: shown, go: shown_go, failures }
}

/// The failures of ours. The Go kubelet is measured for comparison: its failures are only printed.
fn failures(ours: Vec<String>, go: Vec<String>) -> Vec<String> {
    go.iter().for_each(|failure| eprintln!("note: Go kubelet: {failure}"));
    ours.into_iter().map(|failure| format!("kubelet: {failure}")).collect()
}

fn size_mb(program: &Path) -> Option<f64> {
    std::fs::metadata(program).ok().map(|file| file.len() as f64 / 1e6)
}

async fn measure(
    settings: &Settings,
    observer: &Observer,
    name: &str,
    program: Option<&Path>,
    manners: Manners,
) -> Option<Figures> {
    let program = program?;
    eprintln!("{name}: {}", program.display());
    let kubelet = match Kubelet::new(settings, name, program) {
        Ok(kubelet) => kubelet,
        Err(error) => return Some(Figures { failures: vec![error.to_string()], ..Figures::default() }),
    };
    let mut figures = scenario::measure(settings, observer, kubelet, manners).await;
    figures.binary_mb = size_mb(program);
    Some(figures)
}
