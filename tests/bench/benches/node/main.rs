//! A whole node on a real runtime, measured beside its floor: the same calls to the same runtime without a kubelet.
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
mod pods;
mod process;
mod rows;
mod runtime;
mod scenario;
mod settings;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use bench::table;
use serde_json::json;

use crate::error::BenchError;
use crate::floor::Floor;
use crate::kubelet::Kubelet;
use crate::runtime::Observer;
use crate::scenario::{Figures, Manners, progress};
use crate::settings::Settings;

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

/// Half of the floor goes before the kubelets and half after them: the machine's own pace may change meanwhile.
async fn run(settings: &Settings) -> Result<Vec<String>, BenchError> {
    let observer = Observer::new(settings)?;
    let load_before = process::load_average();
    let mut floor = Floor::default();
    let rounds = settings.rounds.div_ceil(2);
    progress("floor");
    floor::measure(settings, &observer, rounds, &mut floor).await?;

    let patient = Manners { gone_within: Duration::from_secs(60), ready_within: Duration::from_secs(45) };
    let ours = measure(settings, &observer, "understudy", settings.kubelet.as_deref(), patient).await;
    let hasty = Manners { gone_within: Duration::ZERO, ready_within: Duration::from_secs(10) };
    let go = measure(settings, &observer, "go", settings.go_kubelet.as_deref(), hasty).await;

    progress("floor again");
    floor::measure(settings, &observer, settings.rounds - rounds, &mut floor).await?;

    let rows = rows::rows(settings.pods, &floor, ours.as_ref(), go.as_ref());
    let all = json!({
        "settings": settings,
        "load_average_before": load_before,
        "rows": rows,
        "floor": floor,
        "ours": ours,
        "go": go,
    });
    let text = format!("{all:#}\n");
    std::fs::write(&settings.json, text).map_err(BenchError::io("write", &settings.json))?;
    println!("\nnode: {} pods, containerd {}", settings.pods, settings.containerd_version);
    println!("load of the machine when it began: {load_before:.1}; a busy one says little\n");
    print!("{}", table(&rows));
    println!("\nall figures: {}", settings.json.display());
    let failures = |who: &str, figures: Option<Figures>| {
        let prefix = who.to_owned();
        let failures = figures.map(|figures| figures.failures).unwrap_or_default();
        failures.into_iter().map(move |failure| format!("{prefix}: {failure}"))
    };
    // The Go kubelet is there to compare with: what it does not do is no failure of ours.
    failures("Go kubelet", go).for_each(|failure| eprintln!("note: {failure}"));
    Ok(failures("kubelet", ours).collect())
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
    figures.binary_mb = std::fs::metadata(program).ok().map(|file| file.len() as f64 / 1e6);
    Some(figures)
}
