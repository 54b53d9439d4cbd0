//! A client that sends exactly the bytes that a test wants.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Longest wait for an answer.
const ANSWER: Duration = Duration::from_secs(60);

/// A certificate and its key, PEM.
#[derive(Clone)]
pub struct Identity {
    pub certificate: String,
    pub key: String,
}

pub struct Authority {
    pub pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "authority");
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    fn sign(&self, params: CertificateParams) -> Identity {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Identity { certificate: certificate.pem(), key: key.serialize_pem() }
    }

    pub fn server(&self) -> Identity {
        self.server_at("kubelet")
    }

    /// The identity of a server with this name or address.
    pub fn server_at(&self, host: &str) -> Identity {
        let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(params)
    }

    pub fn client(&self, name: &str, group: &str) -> Identity {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.distinguished_name.push(DnType::OrganizationName, group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params)
    }
}

pub struct Client {
    address: SocketAddr,
    config: Arc<ClientConfig>,
}

impl Client {
    pub fn new(address: SocketAddr, authority: &Authority, identity: Option<&Identity>) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match identity {
            Some(identity) => {
                let chain = CertificateDer::from_pem_slice(identity.certificate.as_bytes()).unwrap();
                let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
                // Whatever authorities the server names, the certificate is sent, also one of an unknown authority.
                let key = rustls::crypto::ring::sign::any_supported_type(&key).unwrap();
                let certified = rustls::sign::CertifiedKey::new(vec![chain], key);
                builder.with_client_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(certified)))
            }
            None => builder.with_no_client_auth(),
        };
        Self { address, config: Arc::new(config) }
    }

    pub async fn connect(&self) -> std::io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.address).await?;
        let name = ServerName::try_from("kubelet").unwrap();
        TlsConnector::from(self.config.clone()).connect(name, stream).await
    }

    /// A connection whose client offers HTTP/2 as well as HTTP/1.1.
    pub async fn connect_http2(&self) -> std::io::Result<TlsStream<TcpStream>> {
        let mut config = ClientConfig::clone(&self.config);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Self { address: self.address, config: Arc::new(config) }.connect().await
    }

    /// Status and body of one request; `headers` are lines; `Connection: close` is added unless one of them is
    /// `Connection`.
    pub async fn ask(&self, method: &str, path: &str, headers: &[&str]) -> (u16, String) {
        self.send(method, path, headers, "").await
    }

    /// The same with a body, whose length one of the headers tells.
    pub async fn send(&self, method: &str, path: &str, headers: &[&str], body: &str) -> (u16, String) {
        let asked = async {
            let mut stream = self.connect().await.unwrap();
            let mut request = format!("{method} {path} HTTP/1.1\r\nHost: kubelet\r\n");
            // Answers are read to the end of the connection.
            let closing = headers.iter().any(|header| header.starts_with("Connection"));
            let headers = headers.iter().copied().chain((!closing).then_some("Connection: close"));
            for header in headers {
                request += header;
                request += "\r\n";
            }
            stream.write_all((request + "\r\n").as_bytes()).await.unwrap();
            // A server that has refused the body may have closed the connection.
            let _ = stream.write_all(body.as_bytes()).await;
            let mut bytes = Vec::new();
            // A close without a notification ends an answer too.
            let _ = stream.read_to_end(&mut bytes).await;
            read(&String::from_utf8_lossy(&bytes))
        };
        tokio::time::timeout(ANSWER, asked).await.unwrap_or_else(|_| panic!("{method} {path}: no answer"))
    }

    pub async fn get(&self, path: &str) -> (u16, String) {
        self.ask("GET", path, &[]).await
    }
}

fn read(answer: &str) -> (u16, String) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    (status, if chunked { joined(body) } else { body.to_owned() })
}

fn joined(mut body: &str) -> String {
    let mut out = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap_or(0);
        if size == 0 || rest.len() < size {
            break;
        }
        out += &rest[..size];
        body = rest[size..].trim_start_matches("\r\n");
    }
    out
}
