//! Connections to the API server: HTTP/2 where the server offers it, kept as long as they work, with the present
//! identity.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use http::{HeaderValue, Request, Response, Uri};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use kube::client::Body;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tower::Service;

use super::credentials::{Identity, IdentitySource, certificates};
use super::error::ConnectError;
use super::kubeconfig::Kubeconfig;
use super::streams::{Clients, Place, Streamed};
use bridge_io::{Io, lasting};
use bridge_net::names;
use bridge_net::roots::{self, Places};
use bridge_pace::panics;

/// The longest wait for a connection, TLS included.
const CONNECT_DEADLINE: Duration = Duration::from_secs(10);
/// A connection that has been silent for this long is pinged …
const PING_AFTER: Duration = Duration::from_secs(30);
/// … and is closed without an answer after this time.
const PING_DEADLINE: Duration = Duration::from_secs(15);
/// When the certificate changes, calls in flight have this long before connections with the old certificate are closed.
const OLD_CONNECTIONS_LIVE: Duration = Duration::from_secs(10);

/// How to connect to an API server.
#[derive(Clone, Debug)]
pub struct ConnectSettings {
    /// The server, and which authorities to trust.
    pub kubeconfig: Kubeconfig,
    /// The source of the kubelet's identity.
    pub identity: Arc<dyn IdentitySource>,
    /// `User-Agent`.
    pub user_agent: String,
    /// Speak HTTP/1.1 only, and close connections on a redial even while they are in use (`DISABLE_HTTP2`).
    pub http1_only: bool,
}

/// A client with connections of its own. Nothing is connected yet.
///
/// # Errors
/// A part of the kubeconfig that cannot be used: the CA, or the identity as it is now.
pub fn connect(settings: &ConnectSettings, io: &Io) -> Result<kube::Client, ConnectError> {
    dial(settings, io).map(|(client, _)| client)
}

/// Gives up connections that may be dead, so that the next call opens a new one.
pub(super) trait Redial: Send + Sync {
    fn redial(&self);
}

impl Redial for Shared {
    /// Closes idle connections; calls in flight stay on theirs, unless all are to be closed.
    fn redial(&self) {
        let gone = self.current.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(gone) = gone.filter(|_| self.http1_only) {
            gone.connector.closed.cancel();
        }
    }
}

pub(super) fn dial(
    settings: &ConnectSettings,
    io: &Io,
) -> Result<(kube::Client, Arc<dyn Redial>), ConnectError> {
    let trust = Trust::of(&settings.kubeconfig)?;
    // A wrong key or certificate is reported now instead of at the first request.
    trust.config(&settings.identity.at_start()?, settings.http1_only)?;
    let agent = HeaderValue::from_str(&settings.user_agent)
        .map_err(|_| ConnectError::Unsupported(format!("user agent {:?}", settings.user_agent)))?;
    let shared = Arc::new(Shared {
        kubeconfig: settings.kubeconfig.clone(),
        identity: settings.identity.clone(),
        trust,
        agent,
        io: io.clone(),
        http1_only: settings.http1_only,
        current: Mutex::new(None),
    });
    let followed = Arc::downgrade(&shared);
    // Not awaited: the task ends at the first change after the client's end.
    drop(io.spawn(lasting("follow the identity", move || follow_identity(followed.clone()))));
    // The client's buffer runs as a task of the I/O runtime.
    let client = io.enter(|| kube::Client::new(ApiService(shared.clone()), "default"));
    Ok((client, shared))
}

/// Opens new connections when the certificate changes, so that a client with only watches uses the newest certificate,
/// too.
async fn follow_identity(shared: Weak<Shared>) {
    let Some(mut changes) = shared.upgrade().and_then(|shared| shared.identity.changes()) else { return };
    while let Some(shared) = shared.upgrade() {
        let in_use = shared.current.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        if in_use && let Ok(identity) = shared.identity.identity() {
            // An error with this identity is reported by the next call.
            let _ = shared.place(&identity);
        }
        drop(shared);
        if changes.next().await.is_none() {
            return;
        }
    }
}

type Http = HyperClient<Connector, Body>;

/// The connections that were made with one identity.
struct Connections {
    generation: u64,
    connector: Connector,
    clients: Clients<Http>,
}

impl Connections {
    fn place(&mut self) -> (Http, Place) {
        let connector = &self.connector;
        self.clients.place(|| {
            HyperClient::builder(TokioExecutor::new())
                .timer(TokioTimer::new())
                .pool_timer(TokioTimer::new())
                .pool_idle_timeout(Duration::from_secs(90))
                .http2_keep_alive_interval(PING_AFTER)
                .http2_keep_alive_timeout(PING_DEADLINE)
                .http2_keep_alive_while_idle(true)
                .build(connector.clone())
        })
    }
}

struct Shared {
    kubeconfig: Kubeconfig,
    identity: Arc<dyn IdentitySource>,
    trust: Trust,
    agent: HeaderValue,
    io: Io,
    http1_only: bool,
    current: Mutex<Option<Connections>>,
}

impl Shared {
    /// A place on a connection that is made with this identity.
    fn place(&self, identity: &Identity) -> Result<(Http, Place), ConnectError> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(connections) = &mut *current
            && connections.generation == identity.generation
        {
            return Ok(connections.place());
        }
        let connector = Connector {
            tls: self.trust.config(identity, self.http1_only)?,
            name: self.kubeconfig.tls_server_name.clone(),
            io: self.io.clone(),
            closed: CancellationToken::new(),
        };
        let generation = identity.generation;
        let mut connections = Connections { generation, connector, clients: Clients::new() };
        let place = connections.place();
        if let Some(old) = current.replace(connections) {
            tracing::info!(
                "Certificate rotation detected, shutting down client connections to start using new credentials"
            );
            // Watches would keep the old identity for minutes; other calls may finish first.
            drop(self.io.spawn(async move {
                tokio::time::sleep(OLD_CONNECTIONS_LIVE).await;
                old.connector.closed.cancel();
            }));
        }
        Ok(place)
    }
}

/// Adds the server's address and the identity's credentials to each request.
#[derive(Clone)]
struct ApiService(Arc<Shared>);

impl Service<Request<Body>> for ApiService {
    type Response = Response<Streamed>;
    type Error = tower::BoxError;
    type Future = BoxFuture<'static, Result<Response<Streamed>, tower::BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let shared = self.0.clone();
        Box::pin(async move {
            shared.identity.refresh().await?;
            let identity = shared.identity.identity()?;
            let server = &shared.kubeconfig.server;
            let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
            let base = server.path().trim_end_matches('/');
            let authority = server.authority().map(ToString::to_string).unwrap_or_default();
            let scheme = server.scheme_str().unwrap_or("https");
            *request.uri_mut() = format!("{scheme}://{authority}{base}{target}").parse()?;
            request.headers_mut().insert(http::header::USER_AGENT, shared.agent.clone());
            if let Some(token) = &identity.token {
                let mut value = HeaderValue::from_str(&format!("Bearer {token}"))?;
                value.set_sensitive(true);
                request.headers_mut().insert(http::header::AUTHORIZATION, value);
            }
            let (http, place) = shared.place(&identity)?;
            let answer = http.request(request).await?.map(|body| Streamed::new(body, place));
            // A late answer says nothing about credentials that were renewed meanwhile.
            if answer.status() == http::StatusCode::UNAUTHORIZED
                && shared.identity.identity().is_ok_and(|present| identity.is_still(&present))
            {
                shared.identity.refused();
            }
            Ok(answer)
        })
    }
}

// ---- trust ----

#[derive(Clone, Debug)]
struct Trust {
    roots: Arc<RootCertStore>,
    anyone: Option<Arc<dyn ServerCertVerifier>>,
}

impl Trust {
    fn of(kubeconfig: &Kubeconfig) -> Result<Self, ConnectError> {
        if kubeconfig.insecure_skip_tls_verify {
            let anyone = Some(bridge_net::unverified::verifies_nothing());
            return Ok(Self { roots: Arc::new(RootCertStore::empty()), anyone });
        }
        let mut roots = RootCertStore::empty();
        if let Some(pem) = &kubeconfig.certificate_authority {
            let field = "certificate-authority";
            for certificate in certificates(pem, field)? {
                roots.add(certificate).map_err(|error| pem.wrong(field, error))?;
            }
        } else {
            roots = roots::store(&Places::of_this_machine()).map_err(ConnectError::Tls)?;
        }
        Ok(Self { roots: Arc::new(roots), anyone: None })
    }

    fn config(&self, identity: &Identity, http1_only: bool) -> Result<Arc<ClientConfig>, ConnectError> {
        let tls = |error: rustls::Error| ConnectError::Tls(error.to_string());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(tls)?;
        let builder = match &self.anyone {
            Some(verifier) => builder.dangerous().with_custom_certificate_verifier(verifier.clone()),
            None => builder.with_root_certificates(self.roots.clone()),
        };
        let mut config = match identity.certificate.as_deref() {
            Some((certificates, key)) => {
                builder.with_client_auth_cert(certificates.clone(), key.clone_key()).map_err(tls)?
            }
            None => builder.with_no_client_auth(),
        };
        let protocols: &[&[u8]] = if http1_only { &[b"http/1.1"] } else { &[b"h2", b"http/1.1"] };
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(Arc::new(config))
    }
}

// ---- connections ----

#[derive(Clone)]
struct Connector {
    tls: Arc<ClientConfig>,
    name: Option<String>,
    io: Io,
    closed: CancellationToken,
}

impl Service<Uri> for Connector {
    type Response = Conn;
    type Error = ConnectError;
    type Future = BoxFuture<'static, Result<Conn, ConnectError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let this = self.clone();
        let io = self.io.clone();
        Box::pin(async move {
            let server = uri.authority().map(ToString::to_string).unwrap_or_default();
            let failed = |reason: String| ConnectError::Connection { server: server.clone(), reason };
            let opening = async move { timeout(CONNECT_DEADLINE, this.open(&uri)).await };
            match io.spawn(panics::caught(opening)).await.map(panics::resumed) {
                Ok(Ok(opened)) => opened.map_err(failed),
                Ok(Err(_)) => Err(failed(format!("no connection within {} s", CONNECT_DEADLINE.as_secs()))),
                Err(_) => Err(failed("the I/O runtime has shut down".to_owned())),
            }
        })
    }
}

impl Connector {
    async fn open(&self, uri: &Uri) -> Result<Conn, String> {
        let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let plain = uri.scheme_str() == Some("http");
        let port = uri.port_u16().unwrap_or(if plain { 80 } else { 443 });
        let stream = names::connect("API server", host, port).await.map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let closed = Box::pin(self.closed.clone().cancelled_owned());
        if plain {
            return Ok(Conn { stream: Stream::Plain(TokioIo::new(stream)), closed });
        }
        let name = self.name.as_deref().unwrap_or(host).to_owned();
        let wrong = |error| format!("tls-server-name: Invalid value: {name:?}: {error}");
        let name = ServerName::try_from(name.clone()).map_err(wrong)?;
        let stream = TlsConnector::from(self.tls.clone()).connect(name, stream).await;
        let stream = TokioIo::new(Box::new(stream.map_err(|error| error.to_string())?));
        Ok(Conn { stream: Stream::Tls(stream), closed })
    }
}

enum Stream {
    Plain(TokioIo<TcpStream>),
    Tls(TokioIo<Box<TlsStream<TcpStream>>>),
}

/// A connection that can be closed from outside its user.
struct Conn {
    stream: Stream,
    closed: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Connection for Conn {
    fn connected(&self) -> Connected {
        match &self.stream {
            Stream::Plain(_) => Connected::new(),
            Stream::Tls(stream) => match stream.inner().get_ref().1.alpn_protocol() {
                Some(b"h2") => Connected::new().negotiated_h2(),
                _ => Connected::new(),
            },
        }
    }
}

impl Read for Conn {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        let this = self.get_mut();
        if this.closed.as_mut().poll(cx).is_ready() {
            let why = "closed: it was given up for another one";
            return Poll::Ready(Err(std::io::Error::new(std::io::ErrorKind::ConnectionAborted, why)));
        }
        match &mut this.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Stream::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl Write for Conn {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<std::io::Result<usize>> {
        match &mut self.get_mut().stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Stream::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified};
    use rustls::pki_types::{CertificateDer, UnixTime};
    use rustls::{DigitallySignedStruct, Error, SignatureScheme};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::kubeconfig::User;

    /// A verifier that panics when a handshake begins.
    #[derive(Debug)]
    struct Broken;

    impl ServerCertVerifier for Broken {
        fn verify_server_cert(
            &self,
            _: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: &ServerName<'_>,
            _: &[u8],
            _: UnixTime,
        ) -> Result<ServerCertVerified, Error> {
            unreachable!("the handshake has ended before")
        }

        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            unreachable!("the handshake has ended before")
        }

        fn verify_tls13_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            unreachable!("the handshake has ended before")
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            panics::note("there".to_owned());
            panic!("in the handshake")
        }
    }

    #[tokio::test]
    async fn a_panic_while_a_connection_opens_goes_on_in_the_call() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri: Uri = format!("https://{}", server.local_addr().unwrap()).parse().unwrap();
        let mut tls = (*bridge_net::unverified::config()).clone();
        tls.dangerous().set_certificate_verifier(Arc::new(Broken));
        let (tls, closed) = (Arc::new(tls), CancellationToken::new());
        let mut connector = Connector { tls, name: None, io: Io::current(), closed };
        let panic = panics::caught(connector.call(uri)).await.map(drop).unwrap_err();
        assert_eq!(panic.to_string(), "in the handshake at there");
    }

    /// A source with an identity that can be renewed, and the number of refusals that it was told of.
    #[derive(Debug)]
    struct Renewable(Mutex<(Identity, u32)>);

    impl Renewable {
        fn renew(&self, token: &str) {
            self.0.lock().unwrap().0.token = Some(Arc::from(token));
        }

        fn refusals(&self) -> u32 {
            self.0.lock().unwrap().1
        }
    }

    impl IdentitySource for Renewable {
        fn identity(&self) -> Result<Identity, ConnectError> {
            Ok(self.0.lock().unwrap().0.clone())
        }

        fn refused(&self) {
            self.0.lock().unwrap().1 += 1;
        }
    }

    /// Answers one request with 401, when `meanwhile` has returned.
    async fn refuse(server: &TcpListener, meanwhile: impl FnOnce()) {
        let (mut stream, _) = server.accept().await.unwrap();
        let mut asked = Vec::new();
        while !asked.ends_with(b"\r\n\r\n") {
            asked.push(stream.read_u8().await.unwrap());
        }
        meanwhile();
        let answer = b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        stream.write_all(answer).await.unwrap();
    }

    #[tokio::test]
    async fn a_late_refusal_does_not_count_against_credentials_that_were_renewed_meanwhile() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let source = Arc::new(Renewable(Mutex::default()));
        source.renew("first");
        let settings = ConnectSettings {
            kubeconfig: Kubeconfig {
                server: format!("http://{}", server.local_addr().unwrap()).parse().unwrap(),
                certificate_authority: None,
                tls_server_name: None,
                insecure_skip_tls_verify: true,
                user: User::Anonymous,
            },
            identity: source.clone(),
            user_agent: "test".to_owned(),
            http1_only: true,
        };
        let client = connect(&settings, &Io::current()).unwrap();
        let ask = || client.send(Request::get("/healthz").body(Body::empty()).unwrap());
        // The same content had anew is another credential, too.
        let (answer, ()) = tokio::join!(ask(), refuse(&server, || source.renew("first")));
        assert_eq!((answer.unwrap().status().as_u16(), source.refusals()), (401, 0));
        let (answer, ()) = tokio::join!(ask(), refuse(&server, || ()));
        assert_eq!((answer.unwrap().status().as_u16(), source.refusals()), (401, 1));
    }
}
