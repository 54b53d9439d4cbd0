//! The routes of the HTTPS port, each behind authorisation (section 24 of docs/behaviours.md).

use std::path::PathBuf;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use bridge_node::host::{Journal, SystemLogs};
use jiff::Timestamp;
use messages::config_manager::GetConfiguration;
use messages::pleg::GetRuntimePods;
use supervision::AskPort;

use crate::access::{Access, guard};
use crate::actor::NodeApi;
use crate::checkpoint::checkpoint;
use crate::containers::{self, Containers};
use crate::metrics::{Server, counted};
use crate::pods::running_list;
use crate::pprof::pprof;
use crate::routes::{ASK_DEADLINE, Answers, json, shared_routes, unavailable};
use crate::submission::{Submission, submissions};
use crate::system_logs::{slashed, system_logs};
use crate::under_way::{UnderWay, bounded};
use crate::zpages::{ZPages, pages};

/// Which routes the HTTPS port offers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HttpsOffers {
    /// `enableDebuggingHandlers`: logs, exec, attach, port-forward and the list of running pods.
    pub debugging: bool,
    /// `enableSystemLogHandler`: the directory of the machine's logs; `None` where they are not offered.
    pub system_logs: Option<PathBuf>,
    /// `enableSystemLogQuery`: the program that tells the machine's journal; `None` where queries of logs are not answered.
    pub journal: Option<PathBuf>,
    /// The directory of checkpoints of containers; `None` where they are not offered.
    pub checkpoints: Option<PathBuf>,
    /// The pages about the process.
    pub zpages: ZPages,
}

/// All routes of the HTTPS port, each guarded; with `submission` pods can be submitted.
pub fn secured_routes(
    answers: Answers,
    containers: Containers,
    submission: Option<Submission>,
    offers: &HttpsOffers,
    access: Access,
) -> Router {
    let metrics = answers.metrics.clone();
    let began = Timestamp::from_second(metrics.began).unwrap_or(Timestamp::UNIX_EPOCH);
    let zpages = pages(&offers.zpages, began, containers.clock.clone());
    let configuration = answers.configuration.clone();
    let routes = shared_routes(answers);
    let routes = if offers.debugging {
        let configz = Router::new().route("/configz", get(configz)).with_state(configuration);
        let pprof = pprof(offers.zpages.pprof.clone());
        routes.merge(debugging(containers, offers)).merge(configz).merge(zpages).merge(pprof)
    } else {
        routes.merge(disabled())
    };
    let routes = match submission {
        Some(submission) => routes.merge(submissions(submission)),
        None => routes,
    };
    routes
        .layer(from_fn_with_state(UnderWay::default(), bounded))
        .layer(from_fn_with_state(access, guard))
        .layer(from_fn_with_state((metrics, Server::Secured), counted))
}

fn debugging(containers: Containers, offers: &HttpsOffers) -> Router {
    let system_logs = match offers.system_logs.clone() {
        Some(root) => {
            let io = &containers.io;
            let journal = offers.journal.clone().map(|program| Journal::new(io.clone(), program));
            system_logs(SystemLogs::new(io.clone(), root), journal, io.clone())
        }
        None => {
            let off = || any(|| async { (StatusCode::METHOD_NOT_ALLOWED, "logs endpoint is disabled.\n") });
            Router::new().route("/logs/", off()).route("/logs/{*path}", off())
        }
    };
    let routes = match offers.checkpoints.as_deref() {
        Some(directory) => {
            Router::new().route("/checkpoint/{namespace}/{pod}/{container}", checkpoint(directory.into()))
        }
        None => Router::new(),
    };
    routes
        .route("/logs", any(slashed))
        .route("/runningpods", get(running_pods))
        .route("/runningpods/", get(running_pods))
        .route("/containerLogs/{namespace}/{pod}/{container}", get(containers::logs))
        .route("/run/{namespace}/{pod}/{container}", post(containers::run))
        .route("/run/{namespace}/{pod}/{uid}/{container}", post(containers::run))
        .route("/exec/{namespace}/{pod}/{container}", get(containers::exec).post(containers::exec))
        .route("/exec/{namespace}/{pod}/{uid}/{container}", get(containers::exec).post(containers::exec))
        .route("/attach/{namespace}/{pod}/{container}", get(containers::attach).post(containers::attach))
        .route(
            "/attach/{namespace}/{pod}/{uid}/{container}",
            get(containers::attach).post(containers::attach),
        )
        .route("/portForward/{namespace}/{pod}", get(containers::port_forward).post(containers::port_forward))
        .route(
            "/portForward/{namespace}/{pod}/{uid}",
            get(containers::port_forward).post(containers::port_forward),
        )
        .with_state(containers)
        .merge(system_logs)
}

/// The debugging routes while `enableDebuggingHandlers` is off: 405 (row 21.15).
fn disabled() -> Router {
    let off = || any(|| async { (StatusCode::METHOD_NOT_ALLOWED, "Debug endpoints are disabled.\n") });
    let under =
        ["run", "exec", "attach", "portForward", "containerLogs", "runningpods", "debug/pprof", "logs"];
    under.into_iter().fold(Router::new(), |routes, path| {
        routes.route(&format!("/{path}/"), off()).route(&format!("/{path}/{{*rest}}"), off())
    })
}

async fn configz(State(configuration): State<AskPort<NodeApi, GetConfiguration>>) -> Response {
    match configuration.ask(GetConfiguration, ASK_DEADLINE).await {
        Ok(shown) => {
            let text = format!("{{\"kubeletconfig\":{shown}}}");
            ([(header::CONTENT_TYPE, "application/json")], text).into_response()
        }
        Err(error) => unavailable(messages::config_manager::RECEIVER, &error),
    }
}

async fn running_pods(State(containers): State<Containers>) -> Response {
    match containers.runtime_pods.ask(GetRuntimePods, ASK_DEADLINE).await {
        Ok(Some(held)) => json(&running_list(&held)),
        Ok(None) => {
            (StatusCode::INTERNAL_SERVER_ERROR, "the runtime has not been looked at yet\n").into_response()
        }
        Err(error) => unavailable(messages::pleg::RECEIVER, &error),
    }
}
