//! TLS to the kubelet's authenticated port: which authorities are trusted, which name is expected, and what a failure means.

use std::io;
use std::sync::Arc;

use bridge_net::roots::{self, Places};
use bridge_net::unverified::verifies_nothing;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore};

/// Which certificates of a server are accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Those of the machine's authorities.
    Machine,
    /// Those of these authorities.
    Authorities {
        /// Their certificates, PEM.
        pem: Vec<u8>,
        /// Where they were read, for errors.
        from: String,
    },
    /// Every certificate.
    Everything,
}

/// A client certificate and its key, PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientPair {
    /// The certificate with its chain.
    pub certificate: Vec<u8>,
    /// The certificate's key.
    pub key: Vec<u8>,
    /// Where they were read, for errors.
    pub from: String,
}

/// How a connection is secured.
#[derive(Clone, Debug)]
pub struct Tls {
    /// The client's configuration: TLS 1.2 or 1.3.
    pub config: Arc<ClientConfig>,
    /// The name that the server's certificate has to hold for.
    pub name: ServerName<'static>,
}

impl Tls {
    /// Of a server with this name or address.
    ///
    /// # Errors
    /// What cannot be used, and where it was read.
    pub fn new(trust: &Trust, pair: Option<&ClientPair>, name: &str) -> Result<Self, String> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let builder = match trust {
            Trust::Everything => builder.dangerous().with_custom_certificate_verifier(verifies_nothing()),
            Trust::Authorities { pem, from } => builder.with_root_certificates(authorities(pem, from)?),
            Trust::Machine => {
                let store = roots::store(&Places::of_this_machine());
                let none =
                    |why: String| format!("{why}; name the kubelet's authority with --certificate-authority");
                builder.with_root_certificates(store.map_err(none)?)
            }
        };
        let mut config = match pair {
            None => builder.with_no_client_auth(),
            Some(pair) => {
                let wrong = |why: String| format!("{}: {why}", pair.from);
                let chain = certificates(&pair.certificate).map_err(wrong)?;
                let key = PrivateKeyDer::from_pem_slice(&pair.key)
                    .map_err(|error| wrong(format!("no private key: {error}")))?;
                builder.with_client_auth_cert(chain, key).map_err(|error| wrong(error.to_string()))?
            }
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let expected = ServerName::try_from(name.to_owned());
        let expected = expected.map_err(|_| {
            format!("{name:?} is no name that a certificate can hold for; --tls-server-name names another")
        })?;
        Ok(Self { config: Arc::new(config), name: expected })
    }

    /// What a failed handshake means, and what helps.
    pub fn explained(&self, error: &io::Error) -> String {
        let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        let Some(tls) = tls else {
            return match error.kind() {
                io::ErrorKind::UnexpectedEof => "the connection ended during the TLS handshake".to_owned(),
                _ => format!("TLS: {error}"),
            };
        };
        let name = self.name.to_str();
        match tls {
            rustls::Error::InvalidCertificate(certificate) => {
                format!("the server's certificate is refused: {}", refused(certificate, &name))
            }
            rustls::Error::AlertReceived(alert) => alerted(*alert),
            rustls::Error::InvalidMessage(_) => {
                "the server speaks no TLS there: the read-only port's URL begins with http://".to_owned()
            }
            other => format!("TLS: {other}"),
        }
    }
}

fn refused(error: &CertificateError, name: &str) -> String {
    use CertificateError as Wrong;
    match error {
        Wrong::UnknownIssuer => "it is signed by an authority that is not trusted; name that authority with \
             --certificate-authority FILE (of a kubelet that signs its own certificate, that certificate)"
            .to_owned(),
        Wrong::NotValidForName | Wrong::NotValidForNameContext { .. } => {
            format!(
                "{error} (expected {name}); if that is the right server, --tls-server-name names what its certificate says"
            )
        }
        Wrong::Expired | Wrong::ExpiredContext { .. } => {
            format!("{error}; the kubelet needs a new one, or this machine's clock is wrong")
        }
        Wrong::NotValidYet | Wrong::NotValidYetContext { .. } => {
            format!("{error}; this machine's clock may be wrong")
        }
        other => format!("{other}; --certificate-authority FILE names what to trust"),
    }
}

/// What the server says of the client's certificate, as it can be told from an alert.
pub fn alerted(alert: AlertDescription) -> String {
    use AlertDescription as Said;
    match alert {
        Said::CertificateRequired
        | Said::BadCertificate
        | Said::UnsupportedCertificate
        | Said::CertificateRevoked
        | Said::CertificateExpired
        | Said::CertificateUnknown
        | Said::UnknownCA
        | Said::AccessDenied => {
            format!(
                "the server refuses the client certificate ({alert:?}); --client-certificate names another"
            )
        }
        Said::ProtocolVersion => "the server speaks neither TLS 1.2 nor TLS 1.3".to_owned(),
        other => format!("the server ended the TLS handshake ({other:?})"),
    }
}

fn authorities(pem: &[u8], from: &str) -> Result<RootCertStore, String> {
    let wrong = |why: String| format!("{from}: {why}");
    let mut store = RootCertStore::empty();
    for certificate in certificates(pem).map_err(wrong)? {
        store.add(certificate).map_err(|error| wrong(error.to_string()))?;
    }
    Ok(store)
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let certificates = read.map_err(|error| format!("no certificate: {error}"))?;
    if certificates.is_empty() {
        return Err("it holds no certificate".to_owned());
    }
    Ok(certificates)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_of_a_certificate_is_told_with_the_flag() {
        for alert in [AlertDescription::UnknownCA, AlertDescription::CertificateExpired] {
            assert!(alerted(alert).contains("--client-certificate names another"), "{}", alerted(alert));
        }
        assert!(alerted(AlertDescription::ProtocolVersion).contains("TLS 1.2"));
        let tls = Tls::new(&Trust::Everything, None, "10.0.0.1").unwrap();
        let alert = rustls::Error::AlertReceived(AlertDescription::HandshakeFailure);
        let told = tls.explained(&io::Error::new(io::ErrorKind::InvalidData, alert));
        assert!(told.contains("HandshakeFailure"), "{told}");
        assert!(tls.explained(&io::ErrorKind::UnexpectedEof.into()).contains("ended during"));
    }

    #[test]
    fn what_is_no_name_is_refused() {
        let refused = Tls::new(&Trust::Everything, None, "no name").unwrap_err();
        assert!(refused.contains("--tls-server-name"), "{refused}");
    }
}
