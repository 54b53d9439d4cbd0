//! Scrapes of the pages about usage: how long each takes, how large it is, and the CPU that it costs the kubelet.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bench::{Row, Samples, Unit};
use serde::Serialize;

use crate::error::BenchError;
use crate::http;
use crate::kubelet::Kubelet;
use crate::make::Maker;
use crate::process::seconds;
use crate::scenario::Figures;

/// The pages.
const PAGES: [&str; 4] = ["/metrics/resource", "/metrics/cadvisor", "/stats/summary", "/metrics"];
/// Scrapes of each page. The kernel counts CPU in steps of 10 ms.
const SCRAPES: u32 = 30;
/// Longer than what was read for one scrape is good for the next.
const PAUSE: Duration = Duration::from_millis(1100);

/// Figures of one page.
#[derive(Debug, Default, Serialize)]
pub struct Scraped {
    /// From the request to the last byte.
    pub took_s: Samples,
    /// The largest answer, MB.
    pub size_mb: f64,
    /// CPU of the kubelet for one scrape, beyond what it takes when idle.
    pub cpu_s: f64,
}

/// Scrapes all pages of a kubelet that takes so much CPU when idle.
pub async fn scrape(
    kubelet: &mut Kubelet,
    idle_cores: f64,
) -> Result<BTreeMap<&'static str, Scraped>, BenchError> {
    let mut all = BTreeMap::new();
    for path in PAGES {
        let mut page = Scraped::default();
        let (cpu, begun) = (kubelet.cpu(), Instant::now());
        for _ in 0..SCRAPES {
            let asked = Instant::now();
            let body = http::get(kubelet.port, path).await;
            let body = body.ok_or_else(|| BenchError::Wrong(format!("{path} was not answered")))?;
            page.took_s.push(seconds(asked.elapsed()));
            page.size_mb = page.size_mb.max(body.len() as f64 / 1e6);
            tokio::time::sleep(PAUSE).await;
        }
        kubelet.must_live()?;
        let used = kubelet.cpu().since(cpu).own_s - idle_cores * seconds(begun.elapsed());
        page.cpu_s = used.max(0.0) / f64::from(SCRAPES);
        all.insert(path, page);
    }
    Ok(all)
}

/// The rows of all pages.
pub fn rows(make: &Maker<'_, Figures>, pods: usize) -> Vec<Row> {
    fn page<'a>(figures: &'a Figures, path: &str) -> Option<&'a Scraped> {
        figures.scraped.as_ref()?.get(path)
    }
    macro_rules! rows {
        ($($path:literal),*) => {
            [$(
                make.row(format!("{} with {pods} pods, CPU of a scrape", $path), Unit::Seconds, |f| {
                    Some(page(f, $path)?.cpu_s)
                }),
                make.row(format!("{} with {pods} pods, p50", $path), Unit::Seconds, |f| page(f, $path)?.took_s.p50()),
                make.row(format!("{} with {pods} pods, worst", $path), Unit::Seconds, |f| page(f, $path)?.took_s.p99()),
                make.row(format!("{} with {pods} pods, size", $path), Unit::Megabytes, |f| {
                    Some(page(f, $path)?.size_mb)
                }),
            )*]
        };
    }
    rows!["/metrics/resource", "/metrics/cadvisor", "/stats/summary", "/metrics"].into()
}
