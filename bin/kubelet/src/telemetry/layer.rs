//! The layer that turns events into lines.

use jiff::Zoned;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

use super::fields::Fields;
use super::verbosity::level_of;
use super::{Format, Verbosity, json, text, writer};

type Sink = Box<dyn Fn(&[u8]) + Send + Sync>;
type Now = fn() -> Zoned;

/// Writes each event as one line.
pub struct KlogLayer {
    format: Format,
    verbosity: Verbosity,
    pid: u32,
    now: Now,
    sink: Sink,
}

impl KlogLayer {
    /// Lines in `format` on standard error, at the local time.
    ///
    /// # Errors
    /// The thread that writes them cannot be started.
    pub fn to_stderr(format: Format, verbosity: Verbosity) -> std::io::Result<Self> {
        let writer = writer::stderr()?;
        let sink = move |line: &[u8]| writer.write(line);
        Ok(Self { format, verbosity, pid: std::process::id(), now: Zoned::now, sink: Box::new(sink) })
    }
}

impl<S> Layer<S> for KlogLayer
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let metadata = event.metadata();
        let mut fields = Fields::default();
        event.record(&mut fields);
        let level = fields.level.unwrap_or(0).max(level_of(metadata));
        if !self.verbosity.allows(metadata, level) {
            return;
        }
        let around: Vec<Fields> = context
            .event_scope(event)
            .into_iter()
            .flat_map(|scope| scope.from_root())
            .filter_map(|span| span.extensions().get::<Fields>().cloned())
            .collect();
        let now = (self.now)();
        let line = match self.format {
            Format::Text => text::line(&now, self.pid, metadata, &fields, &around),
            Format::Json => json::line(&now, metadata, level, &fields, &around),
        };
        (self.sink)(line.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::sync::{Arc, Mutex};

    use jiff::Zoned;
    use jiff::tz::TimeZone;
    use serde_json::Value as Json;
    use tracing_subscriber::layer::{Layer as _, SubscriberExt};
    use tracing_subscriber::registry::Registry;

    use super::super::{Format, Verbosity};
    use super::KlogLayer;
    use crate::config::logging::VModuleItem;

    fn fixed_time() -> Zoned {
        let time = jiff::civil::date(2026, 11, 21).at(1, 30, 59, 123_456_000);
        time.to_zoned(TimeZone::UTC).expect("a time of UTC")
    }

    fn written(format: Format, verbosity: Verbosity, log: impl FnOnce()) -> String {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&lines);
        let layer = KlogLayer {
            format,
            verbosity: verbosity.clone(),
            pid: 12345,
            now: fixed_time,
            sink: Box::new(move |line| kept.lock().expect("no panic").extend_from_slice(line)),
        };
        let subscriber = Registry::default().with(layer.with_filter(verbosity));
        tracing::subscriber::with_default(subscriber, log);
        let bytes = lines.lock().expect("no panic").clone();
        String::from_utf8(bytes).expect("UTF-8")
    }

    fn level(level: u32) -> Verbosity {
        Verbosity::new(level, &[])
    }

    #[test]
    fn a_text_line_is_klogs() {
        let mut line = 0;
        let text = written(Format::Text, level(0), || {
            line = line!() + 1;
            tracing::info!(pod = "default/web", count = 3, ok = true, err = ?"bad", ratio = 0.5, "Syncing \"pod\"");
        });
        let expected = format!(
            "I1121 01:30:59.123456   12345 layer.rs:{line}] \"Syncing \\\"pod\\\"\" pod=\"default/web\" count=3 \
             ok=true err=\"bad\" ratio=0.5\n"
        );
        assert_eq!(text, expected);
    }

    #[test]
    fn severities_have_their_letters_and_long_texts_their_lines() {
        let text = written(Format::Text, level(6), || {
            tracing::error!(err = "one\ntwo\n", "failed");
            tracing::warn!("careful");
            tracing::trace!("detail");
        });
        let letters: Vec<char> = text
            .lines()
            .filter(|line| line.contains("layer.rs"))
            .filter_map(|line| line.chars().next())
            .collect();
        assert_eq!(letters, ['E', 'W', 'I']);
        assert!(text.contains(" err=<\n\tone\n\ttwo\n >\n"), "{text}");
    }

    #[test]
    fn verbosity_decides_what_is_written() {
        let count = |verbosity| {
            let text = written(Format::Text, verbosity, || {
                tracing::info!("V0");
                tracing::info!(v = 2, "V2");
                tracing::debug!("V4");
                tracing::debug!(v = 5, "V5");
                tracing::trace!("V6");
                tracing::debug!(target: "h2::frame", "V8");
                tracing::warn!(target: "h2::frame", "always");
            });
            text.lines().count()
        };
        let counts: Vec<usize> = [0, 2, 4, 5, 6, 8].map(|v| count(level(v))).into();
        assert_eq!(counts, [2, 3, 4, 5, 6, 7]);
        let module = |pattern: &str| VModuleItem { file_pattern: pattern.to_owned(), verbosity: 5 };
        assert_eq!(count(Verbosity::new(0, &[module("lay*")])), 5);
        assert_eq!(count(Verbosity::new(0, &[module("telemetry")])), 5);
        assert_eq!(count(Verbosity::new(0, &[module("other")])), 2);
    }

    #[test]
    fn verbosity_changes_while_the_process_runs() {
        let verbosity = level(0);
        let text = written(Format::Text, verbosity.clone(), || {
            for step in [0, 4, 0] {
                verbosity.shared().store(step, Ordering::Relaxed);
                tracing::debug!(step, "detail");
            }
        });
        assert_eq!(text.lines().count(), 1);
        assert!(text.contains("step=4"), "{text}");
    }

    #[test]
    fn the_fields_of_spans_come_with_their_events() {
        let text = written(Format::Text, level(0), || {
            let span = tracing::debug_span!("sync", pod = "a/b", attempt = tracing::field::Empty);
            span.record("attempt", 2);
            span.in_scope(|| tracing::info!(step = "pull", "Working"));
        });
        assert!(text.ends_with("\"Working\" pod=\"a/b\" attempt=2 step=\"pull\"\n"), "{text}");
    }

    #[test]
    fn a_json_line_is_component_bases() {
        let text = written(Format::Json, level(4), || {
            tracing::debug!(pod = "a\"b", count = 3, "Syncing");
            tracing::error!(err = "bad", "failed");
        });
        let lines: Vec<Json> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert!(text.starts_with("{\"ts\":1795224659123.456,\"caller\":\"telemetry/layer.rs:"), "{text}");
        assert_eq!(
            (&lines[0]["msg"], &lines[0]["v"], &lines[0]["pod"]),
            (&"Syncing".into(), &4.into(), &"a\"b".into())
        );
        assert_eq!((&lines[1]["err"], lines[1].get("v")), (&"bad".into(), None));
    }
}
