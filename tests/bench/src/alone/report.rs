//! The figures of one subsystem, as lines of a table and as JSON.

use serde_json::json;

use crate::Samples;

/// The figures with so many pods.
pub(super) struct Figures {
    pub pods: usize,
    /// Messages per second.
    pub ours: f64,
    /// Seconds per ask.
    pub asks: Samples,
    /// Messages per second.
    pub floor: f64,
    /// Seconds per ask.
    pub floor_asks: Samples,
    /// Seconds per recovery.
    pub recovery: Samples,
}

pub(super) struct Report {
    pub name: &'static str,
    pub bytes_per_pod: f64,
    pub figures: Vec<Figures>,
}

/// Set for all but the first of several benches whose lines make one table.
const NO_HEAD: &str = "BENCH_NO_HEAD";

fn micros(seconds: Option<f64>) -> f64 {
    seconds.unwrap_or_default() * 1e6
}

impl Report {
    pub fn print(&self) {
        if std::env::var_os(NO_HEAD).is_none() {
            println!(
                "{:<17} {:>5} {:>11} {:>11} {:>6} {:>10} {:>10} {:>10} {:>12} {:>10}",
                "subsystem",
                "pods",
                "messages/s",
                "floor/s",
                "x cost",
                "ask p50 us",
                "ask p99 us",
                "floor p50",
                "recovery us",
                "bytes/pod"
            );
        }
        for (place, figures) in self.figures.iter().enumerate() {
            let last = place + 1 == self.figures.len();
            let bytes = if last { format!("{:.0}", self.bytes_per_pod) } else { "-".to_owned() };
            println!(
                "{:<17} {:>5} {:>11.0} {:>11.0} {:>6.1} {:>10.1} {:>10.1} {:>10.1} {:>12.0} {:>10}",
                self.name,
                figures.pods,
                figures.ours,
                figures.floor,
                figures.floor / figures.ours,
                micros(figures.asks.p50()),
                micros(figures.asks.p99()),
                micros(figures.floor_asks.p50()),
                micros(figures.recovery.p50()),
                bytes
            );
        }
        let sizes: Vec<_> = self.figures.iter().map(Figures::json).collect();
        println!(
            "{}",
            json!({ "bench": "subsystem", "name": self.name, "bytesPerPod": self.bytes_per_pod, "sizes": sizes })
        );
    }
}

impl Figures {
    fn json(&self) -> serde_json::Value {
        json!({
            "pods": self.pods,
            "messagesPerSecond": self.ours,
            "floorMessagesPerSecond": self.floor,
            "costToFloor": self.floor / self.ours,
            "askP50Us": micros(self.asks.p50()),
            "askP99Us": micros(self.asks.p99()),
            "floorAskP50Us": micros(self.floor_asks.p50()),
            "floorAskP99Us": micros(self.floor_asks.p99()),
            "recoveryP50Us": micros(self.recovery.p50()),
            "recoveryP99Us": micros(self.recovery.p99()),
        })
    }
}
