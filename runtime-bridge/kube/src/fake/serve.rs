//! The server in memory as a tower service: it takes requests, applies faults, and answers with objects or watches.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use kube::client::Body;
use serde_json::Value;
use tower::{BoxError, Service};

use super::call::{Call, Verb};
use super::faults::Fault;
use super::refusal::Refusal;
use super::watch::watch;
use super::{Link, Shared};

pub(super) type AnswerBody = UnsyncBoxBody<Bytes, BoxError>;

#[derive(Clone, Debug)]
pub(super) struct MemoryServer(pub Arc<Shared>);

impl Service<Request<Body>> for MemoryServer {
    type Response = Response<AnswerBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<AnswerBody>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(serve(self.0.clone(), request))
    }
}

/// The error that a client gets when its connection is refused.
pub(super) fn unreachable() -> BoxError {
    std::io::Error::new(std::io::ErrorKind::ConnectionRefused, "Connection refused").into()
}

/// The error that a client gets when its connection breaks.
pub(super) fn broken() -> BoxError {
    std::io::Error::new(std::io::ErrorKind::ConnectionReset, "Connection reset by peer").into()
}

fn answer(code: u16, retry_after_s: Option<u64>, body: &Value) -> Result<Response<AnswerBody>, BoxError> {
    let mut answer = Response::builder()
        .status(StatusCode::from_u16(code)?)
        .header(http::header::CONTENT_TYPE, "application/json");
    if let Some(seconds) = retry_after_s {
        answer = answer.header(http::header::RETRY_AFTER, seconds);
    }
    let body = Full::new(Bytes::from(body.to_string())).map_err(|never| match never {});
    Ok(answer.body(body.boxed_unsync())?)
}

fn refused(refusal: &Refusal) -> Result<Response<AnswerBody>, BoxError> {
    answer(refusal.code, refusal.retry_after_s, &refusal.status())
}

/// Waits while the server is paused.
async fn reached(shared: &Shared) -> Result<(), BoxError> {
    let mut link = shared.link.subscribe();
    let up = link.wait_for(|link| link.state != Link::Paused).await.map(|link| link.state);
    if up.is_ok_and(|state| state == Link::Up) { Ok(()) } else { Err(unreachable()) }
}

/// The answer or error of a call that a fault prevents; a slow call waits here.
async fn struck(shared: &Shared, fault: Option<&Fault>) -> Option<Result<Response<AnswerBody>, BoxError>> {
    match fault? {
        Fault::Unreachable => Some(Err(unreachable())),
        Fault::Hang => std::future::pending().await,
        Fault::Latency(time) => {
            tokio::time::sleep(*time).await;
            reached(shared).await.err().map(Err)
        }
        Fault::Refused { code, reason, retry_after_s } => {
            let mut refusal = Refusal::new(*code, reason, format!("scripted refusal with {code}"));
            refusal.retry_after_s = *retry_after_s;
            Some(refused(&refusal))
        }
        Fault::LostReply => None,
    }
}

async fn serve(shared: Arc<Shared>, request: Request<Body>) -> Result<Response<AnswerBody>, BoxError> {
    let (parts, body) = request.into_parts();
    let bytes = body.collect().await?.to_bytes();
    if let path @ ("/healthz" | "/readyz" | "/livez") = parts.uri.path() {
        shared.locked().script.attempt(Verb::Get, path.to_owned());
        reached(&shared).await?;
        let fault = shared.locked().script.arrive_health(path);
        if let Some(failed) = struck(&shared, fault.as_ref()).await {
            return failed;
        }
        let body = Full::new(Bytes::from_static(b"ok")).map_err(|never| match never {});
        return Ok(Response::new(body.boxed_unsync()));
    }
    let call = match Call::read(&Request::from_parts(parts, ()), &bytes) {
        Ok(call) => call,
        Err(refusal) => return refused(&refusal),
    };
    shared.locked().script.attempt(call.verb, call.target());
    reached(&shared).await?;
    let fault = shared.arrive(&call);
    if let Some(failed) = struck(&shared, fault.as_ref()).await {
        return failed;
    }
    if call.verb == Verb::Watch {
        return match watch(&shared, &call) {
            Ok(_) if fault.is_some_and(|fault| fault == Fault::LostReply) => Err(broken()),
            Ok(body) => {
                let answer = Response::builder().header(http::header::CONTENT_TYPE, "application/json");
                Ok(answer.body(body)?)
            }
            Err(refusal) => refused(&refusal),
        };
    }
    let outcome = shared.perform(&call);
    if fault.is_some_and(|fault| fault == Fault::LostReply) {
        return Err(broken());
    }
    match outcome {
        Ok((code, object)) => answer(code, None, &object),
        Err(refusal) => refused(&refusal),
    }
}
