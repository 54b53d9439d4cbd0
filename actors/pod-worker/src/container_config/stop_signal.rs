//! The signal by which a container is asked to end (row 5.20).

use bridge_cri::wire::Signal;
use k8s_openapi::api::core::v1::Container;

use crate::node_rules::NodeRules;

/// The signal in the container's spec, if the gate is on; else the default of the image or the runtime.
pub(super) fn stop_signal(container: &Container, rules: &NodeRules) -> Signal {
    let asked = container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.stop_signal.as_deref());
    asked.filter(|_| rules.stop_signals).map_or(Signal::RuntimeDefault, by_name)
}

/// The signal of this name; an unknown name counts as not given, as upstream takes it.
fn by_name(name: &str) -> Signal {
    if !name.starts_with("SIG") {
        return Signal::RuntimeDefault;
    }
    let name = name.replace('+', "PLUS").replace('-', "MINUS");
    Signal::from_str_name(&name).unwrap_or(Signal::RuntimeDefault)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Lifecycle;

    use super::*;
    use crate::fixtures::container;

    #[test]
    fn signals_are_known_by_their_names() {
        for (name, signal) in [
            ("SIGTERM", Signal::Sigterm),
            ("SIGUSR1", Signal::Sigusr1),
            ("SIGRTMIN", Signal::Sigrtmin),
            ("SIGRTMIN+15", Signal::Sigrtminplus15),
            ("SIGRTMAX-14", Signal::Sigrtmaxminus14),
            ("SIGRTMAX", Signal::Sigrtmax),
            ("RUNTIME_DEFAULT", Signal::RuntimeDefault),
            ("TERM", Signal::RuntimeDefault),
        ] {
            assert_eq!(by_name(name), signal, "{name}");
        }
    }

    #[test]
    fn the_gate_decides() {
        let lifecycle = Lifecycle { stop_signal: Some("SIGINT".into()), ..Lifecycle::default() };
        let container = Container { lifecycle: Some(lifecycle), ..container("c") };
        let on = NodeRules { stop_signals: true, ..NodeRules::default() };
        assert_eq!(stop_signal(&container, &on), Signal::Sigint);
        assert_eq!(stop_signal(&container, &NodeRules::default()), Signal::RuntimeDefault);
        assert_eq!(stop_signal(&crate::fixtures::container("d"), &on), Signal::RuntimeDefault);
    }
}
