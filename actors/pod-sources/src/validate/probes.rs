//! Validation of probes and of lifecycle hooks.

use k8s_openapi::api::core::v1::{
    ExecAction, HTTPGetAction, Lifecycle, LifecycleHandler, Probe, SleepAction, TCPSocketAction,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use pod_rules::labels::LINUX;

use super::field::{Errors, Path, items, text};
use super::names;

pub(super) fn liveness(probe: &Probe, path: &Path, errors: &mut Errors) {
    validate(probe, path, errors);
    succeeds_once(probe, path, errors);
}

pub(super) fn startup(probe: &Probe, path: &Path, errors: &mut Errors) {
    validate(probe, path, errors);
    succeeds_once(probe, path, errors);
}

pub(super) fn readiness(probe: &Probe, path: &Path, errors: &mut Errors) {
    validate(probe, path, errors);
    if let Some(seconds) = probe.termination_grace_period_seconds {
        let message = "must not be set for readinessProbes";
        errors.invalid(&path.child("terminationGracePeriodSeconds"), &seconds, message);
    }
}

fn succeeds_once(probe: &Probe, path: &Path, errors: &mut Errors) {
    let threshold = probe.success_threshold.unwrap_or(0);
    if threshold != 1 {
        errors.invalid(&path.child("successThreshold"), &threshold, "must be 1");
    }
}

fn validate(probe: &Probe, path: &Path, errors: &mut Errors) {
    let handlers = Handlers {
        exec: probe.exec.as_ref(),
        http_get: probe.http_get.as_ref(),
        tcp_socket: probe.tcp_socket.as_ref(),
        grpc_port: probe.grpc.as_ref().map(|grpc| grpc.port),
        sleep: None,
    };
    handlers.validate(None, path, errors);
    for (name, value) in [
        ("initialDelaySeconds", probe.initial_delay_seconds),
        ("timeoutSeconds", probe.timeout_seconds),
        ("periodSeconds", probe.period_seconds),
        ("successThreshold", probe.success_threshold),
        ("failureThreshold", probe.failure_threshold),
    ] {
        errors.not_negative(&path.child(name), i64::from(value.unwrap_or(0)));
    }
    if let Some(seconds) = probe.termination_grace_period_seconds.filter(|seconds| *seconds <= 0) {
        errors.invalid(&path.child("terminationGracePeriodSeconds"), &seconds, "must be greater than 0");
    }
}

pub(super) fn lifecycle(
    lifecycle: &Lifecycle,
    grace_period_seconds: Option<i64>,
    os: Option<&str>,
    path: &Path,
    errors: &mut Errors,
) {
    for (name, handler) in [("postStart", &lifecycle.post_start), ("preStop", &lifecycle.pre_stop)] {
        if let Some(handler) = handler {
            Handlers::of_hook(handler).validate(grace_period_seconds, &path.child(name), errors);
        }
    }
    if let Some(signal) = &lifecycle.stop_signal {
        let path = path.child("stopSignal");
        match os {
            None => errors.forbidden(&path, "may not be set for containers with empty `spec.os.name`"),
            Some("windows") => errors.one_of(&path, signal, &["SIGKILL", "SIGTERM"]),
            Some(LINUX) if !is_linux_signal(signal) => {
                errors.unsupported(&path, signal, &LINUX_SIGNALS);
            }
            Some(_) => {}
        }
    }
}

const LINUX_SIGNALS: [&str; 37] = [
    "SIGABRT",
    "SIGALRM",
    "SIGBUS",
    "SIGCHLD",
    "SIGCLD",
    "SIGCONT",
    "SIGFPE",
    "SIGHUP",
    "SIGILL",
    "SIGINT",
    "SIGIO",
    "SIGIOT",
    "SIGKILL",
    "SIGPIPE",
    "SIGPOLL",
    "SIGPROF",
    "SIGPWR",
    "SIGQUIT",
    "SIGRTMAX",
    "SIGRTMIN",
    "SIGSEGV",
    "SIGSTKFLT",
    "SIGSTOP",
    "SIGSYS",
    "SIGTERM",
    "SIGTRAP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGUSR1",
    "SIGUSR2",
    "SIGVTALRM",
    "SIGWINCH",
    "SIGXCPU",
    "SIGXFSZ",
    "SIGRTMIN+1..15 and SIGRTMAX-1..14",
];

fn is_linux_signal(signal: &str) -> bool {
    let real_time = |prefix: &str, max: u8| {
        signal.strip_prefix(prefix).is_some_and(|number| {
            !number.starts_with(['0', '+'])
                && number.parse().is_ok_and(|number: u8| (1..=max).contains(&number))
        })
    };
    LINUX_SIGNALS[..LINUX_SIGNALS.len() - 1].contains(&signal)
        || real_time("SIGRTMIN+", 15)
        || real_time("SIGRTMAX-", 14)
}

/// The handlers of a probe or hook; exactly one must be given.
struct Handlers<'a> {
    exec: Option<&'a ExecAction>,
    http_get: Option<&'a HTTPGetAction>,
    tcp_socket: Option<&'a TCPSocketAction>,
    grpc_port: Option<i32>,
    sleep: Option<&'a SleepAction>,
}

impl<'a> Handlers<'a> {
    fn of_hook(handler: &'a LifecycleHandler) -> Self {
        Self {
            exec: handler.exec.as_ref(),
            http_get: handler.http_get.as_ref(),
            tcp_socket: handler.tcp_socket.as_ref(),
            grpc_port: None,
            sleep: handler.sleep.as_ref(),
        }
    }

    fn validate(&self, grace_period_seconds: Option<i64>, path: &Path, errors: &mut Errors) {
        let given = [
            ("exec", self.exec.is_some()),
            ("httpGet", self.http_get.is_some()),
            ("tcpSocket", self.tcp_socket.is_some()),
            ("grpc", self.grpc_port.is_some()),
            ("sleep", self.sleep.is_some()),
        ];
        let mut given = given.into_iter().filter_map(|(name, given)| given.then_some(name));
        let Some(first) = given.next() else {
            return errors.required(path, "must specify a handler type");
        };
        self.first(first, grace_period_seconds, &path.child(first), errors);
        for other in given {
            errors.forbidden(&path.child(other), "may not specify more than 1 handler type");
        }
    }

    fn first(&self, name: &str, grace_period_seconds: Option<i64>, path: &Path, errors: &mut Errors) {
        match name {
            "exec" => {
                if self.exec.is_some_and(|exec| items(&exec.command).is_empty()) {
                    errors.required(&path.child("command"), "");
                }
            }
            "httpGet" => self.http_get.into_iter().for_each(|http| http_get(http, path, errors)),
            "tcpSocket" => {
                self.tcp_socket.into_iter().for_each(|tcp| port(&tcp.port, &path.child("port"), errors));
            }
            "grpc" => {
                let number = IntOrString::Int(self.grpc_port.unwrap_or(0));
                port(&number, &path.child("port"), errors);
            }
            _ => {
                let seconds = self.sleep.map_or(0, |sleep| sleep.seconds);
                if let Some(grace) = grace_period_seconds.filter(|grace| seconds < 0 || seconds > *grace) {
                    let message =
                        format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
                    errors.invalid(path, &seconds, message);
                }
            }
        }
    }
}

fn http_get(http: &HTTPGetAction, path: &Path, errors: &mut Errors) {
    errors.not_empty(&path.child("path"), text(&http.path));
    port(&http.port, &path.child("port"), errors);
    errors.one_of(&path.child("scheme"), text(&http.scheme), &["HTTP", "HTTPS"]);
    for (index, header) in items(&http.http_headers).iter().enumerate() {
        let path = path.child("httpHeaders").index(index).child("name");
        errors.all_invalid(&path, &header.name, names::http_header_name(&header.name));
    }
}

fn port(port: &IntOrString, path: &Path, errors: &mut Errors) {
    match port {
        IntOrString::Int(number) => errors.all_invalid(path, number, names::port_number(*number)),
        IntOrString::String(name) => errors.all_invalid(path, name, names::port_name(name)),
    }
}
