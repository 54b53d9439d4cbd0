//! The collector of traces, as the configuration names it (row 23.7).

use std::sync::Arc;

use bridge_io::Io;
use bridge_traces::{CollectorAddress, DEFAULT_ENDPOINT, OtlpCollector, Sampling, TraceCollector};

use crate::config::KubeletConfiguration;

/// The share of pods that are told. Without a share none is: callers' traces, which the Go kubelet follows then, are not.
pub(crate) fn sampling(config: &KubeletConfiguration) -> Sampling {
    let rate = config.node.tracing.as_ref().and_then(|tracing| tracing.sampling_rate_per_million);
    Sampling::per_million(rate.and_then(|rate| u32::try_from(rate).ok()).unwrap_or(0))
}

/// The collector that spans go to; `None`, with a warning where that is not what is meant, if they go nowhere.
pub(crate) fn collector(config: &KubeletConfiguration, io: &Io) -> Option<Arc<dyn TraceCollector>> {
    let tracing = config.node.tracing.as_ref()?;
    if sampling(config).is_never() {
        tracing::warn!(
            "No traces are told: tracing.samplingRatePerMillion is 0, and traces of callers are not followed"
        );
        return None;
    }
    let endpoint = tracing.endpoint.as_deref().filter(|endpoint| !endpoint.is_empty());
    let endpoint = endpoint.unwrap_or(DEFAULT_ENDPOINT);
    let address = match CollectorAddress::parse(endpoint) {
        Ok(address) => address,
        Err(error) => {
            tracing::warn!(%error, "No traces are told");
            return None;
        }
    };
    match OtlpCollector::new(io, address) {
        Ok(collector) => Some(Arc::new(collector)),
        Err(error) => {
            tracing::warn!(%error, endpoint, "No traces are told");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::node::TracingConfiguration;

    fn config(endpoint: Option<&str>, rate: Option<i32>) -> KubeletConfiguration {
        let mut config = KubeletConfiguration::default();
        let endpoint = endpoint.map(str::to_owned);
        config.node.tracing = Some(TracingConfiguration { endpoint, sampling_rate_per_million: rate });
        config
    }

    #[tokio::test]
    async fn spans_go_to_a_collector_only_where_the_configuration_says_so() {
        let io = Io::current();
        let leads = |config: &KubeletConfiguration| collector(config, &io).is_some();
        assert!(!leads(&KubeletConfiguration::default()));
        assert!(!leads(&config(Some("collector:4317"), None)), "there are no callers' traces to follow");
        assert!(!leads(&config(None, Some(0))));
        assert!(leads(&config(None, Some(1))));
        assert!(leads(&config(Some(""), Some(1_000_000))));
        assert!(leads(&config(Some("dns:///collector:4317"), Some(1))));
        assert!(leads(&config(Some("unix:///run/collector.sock"), Some(1))));
        assert!(!leads(&config(Some("dns://collector:4317"), Some(1))), "it has no address");
        assert_eq!(sampling(&config(None, Some(5))), Sampling::per_million(5));
        assert_eq!(sampling(&KubeletConfiguration::default()), Sampling::default());
    }
}
