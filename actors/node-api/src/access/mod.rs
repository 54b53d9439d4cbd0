//! Authenticates and authorises callers of the HTTPS port (rows 21.2, 21.3).

mod attributes;
mod credentials;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::CONNECTION;
use axum::http::{Extensions, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bridge_reviews::{NodeAccess, Reviews, User};
use bridge_serve::{Connection, Peer};
use bridge_tls::serving::{ClientCertificate, ServingTls};

use crate::metrics::ApiMetrics;
pub use attributes::{Attributes, attributes, is_plain, namespace};
pub use credentials::{PresentedCredentials, take_token};

/// The group of every authenticated user.
const AUTHENTICATED: &str = "system:authenticated";

/// The name of callers without credentials, if such callers are let in.
const ANONYMOUS: &str = "system:anonymous";

/// How callers are authenticated and authorised.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessConfig {
    /// The Node object's name.
    pub node: String,
    /// `authentication.anonymous`: callers without credentials are let in as `system:anonymous`.
    pub anonymous: bool,
    /// `authentication.webhook`: the API server reviews tokens.
    pub tokens: bool,
    /// Every authenticated caller may do everything; else the API server reviews each request's access.
    pub always_allow: bool,
    /// exec and its like need only the verb of their HTTP method, as upstream.
    pub exec_by_method: bool,
}

/// Authenticates and authorises requests.
#[derive(Clone)]
pub struct Access {
    /// The configuration.
    pub config: Arc<AccessConfig>,
    /// Checks client certificates.
    pub tls: ServingTls,
    /// Reviews by the API server; `None` without a cluster: then every token is refused, and access is denied unless
    /// `always_allow`.
    pub reviews: Option<Arc<dyn Reviews>>,
    /// Counts certificates of callers.
    pub metrics: ApiMetrics,
}

/// The authenticated user; an extension of every request that [`guard`] lets through.
#[derive(Clone, Debug)]
pub struct Caller(pub Arc<User>);

/// What a request counts against: the tenant of its user, or the address of a caller without a name.
pub(crate) fn client(request: &Extensions) -> String {
    let named = request.get::<Caller>().filter(|caller| caller.0.name != ANONYMOUS);
    if let Some(caller) = named {
        return format!("user {}", caller.0.tenant());
    }
    let address = request.get::<Connection>().and_then(|connection| connection.peer);
    format!("address {}", address.map(|address| Peer::from(address.ip()).to_string()).unwrap_or_default())
}

fn grouped(mut user: User) -> User {
    if user.name != ANONYMOUS && !user.groups.iter().any(|group| group == AUTHENTICATED) {
        user.groups.push(AUTHENTICATED.to_owned());
    }
    user
}

fn anonymous() -> User {
    User { name: ANONYMOUS.to_owned(), groups: vec!["system:unauthenticated".to_owned()], ..User::default() }
}

impl Access {
    /// The authenticated user; `None` if the caller presented credentials of a way that is switched on and they are
    /// bad, even where callers without credentials are let in.
    async fn who(&self, connection: &Connection, presented: PresentedCredentials) -> Option<User> {
        let mut bad = false;
        match self.tls.identify(&connection.chain) {
            ClientCertificate::Valid(identity) => {
                self.metrics.certificate(identity.left);
                let key = "authentication.kubernetes.io/credential-id".to_owned();
                let extra = BTreeMap::from([(key, vec![format!("X509SHA256={}", identity.sha256)])]);
                let (name, groups) = (identity.name, identity.organizations);
                return Some(grouped(User { name, uid: String::new(), groups, extra }));
            }
            ClientCertificate::Refused(reason) => {
                // A stranger chooses how often: a louder line would push all others out of the journal.
                tracing::debug!(reason, "Unable to authenticate the request by its certificate");
                bad = true;
            }
            ClientCertificate::Absent => {}
        }
        if self.config.tokens && presented == PresentedCredentials::Malformed {
            tracing::debug!(
                "Unable to authenticate the request: the token among its WebSocket protocols is none"
            );
            bad = true;
        }
        if let PresentedCredentials::Token(token) = presented
            && self.config.tokens
        {
            let asked = match &self.reviews {
                Some(reviews) => {
                    let answer = reviews.token(&token, connection.peer.map(|peer| peer.ip())).await;
                    answer.map_err(|error| error.to_string())
                }
                None => Err("no API server to ask".to_owned()),
            };
            match asked {
                Ok(Some(user)) => return Some(grouped(user)),
                Ok(None) => {}
                // Strangers choose how many there are, and the reviews' metrics count them.
                Err(error) => tracing::debug!(error, "Unable to authenticate the request by its token"),
            }
            bad = true;
        }
        (self.config.anonymous && !bad).then(anonymous)
    }

    /// The answer to a request that is forbidden or cannot be authorised; `None` if it is allowed.
    async fn refusal(&self, user: &Arc<User>, asked: &Attributes) -> Option<Response> {
        if self.config.always_allow {
            return None;
        }
        let Attributes { verb, subresources } = asked;
        let name = &user.name;
        for subresource in subresources {
            let access = NodeAccess {
                user: user.clone(),
                verb: (*verb).to_owned(),
                node: self.config.node.clone(),
                subresource: (*subresource).to_owned(),
            };
            let answer = match &self.reviews {
                Some(reviews) => reviews.access(access).await.map_err(|error| error.to_string()),
                None => Err("no API server to ask".to_owned()),
            };
            match answer {
                Ok(true) => return None,
                Ok(false) => {}
                Err(error) => {
                    tracing::error!(error, user = name, verb, subresource, "Authorization error");
                    let text = format!(
                        "Authorization error (user={name}, verb={verb}, resource=nodes, subresource={subresource})"
                    );
                    return Some((StatusCode::INTERNAL_SERVER_ERROR, text).into_response());
                }
            }
        }
        let all = subresources.join(" ");
        tracing::debug!(user = name, verb, subresources = all, "Forbidden");
        let text = format!("Forbidden (user={name}, verb={verb}, resource=nodes, subresource(s)=[{all}])\n");
        Some((StatusCode::FORBIDDEN, text).into_response())
    }
}

/// Passes an allowed request on, with its [`Caller`], and answers any other with 400, 401, 403, 500 or 504.
pub async fn guard(State(access): State<Access>, mut request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    if !is_plain(&path) {
        return (StatusCode::BAD_REQUEST, "the path has escapes or empty segments\n").into_response();
    }
    let presented = take_token(request.headers_mut());
    let Some(connection) = request.extensions().get::<Connection>().cloned() else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    connection.patience.streaming(false);
    let Some(user) = access.who(&connection, presented).await else {
        // The next request costs the stranger a handshake, too, not only the node another look at the certificates.
        return (StatusCode::UNAUTHORIZED, [(CONNECTION, "close")], "Unauthorized").into_response();
    };
    let user = Arc::new(user);
    let asked = attributes(request.method(), &path, access.config.exec_by_method);
    if let Some(refusal) = access.refusal(&user, &asked).await {
        return refusal;
    }
    // Being named is not enough for the connection to count as known: many users are named and may do nothing here.
    if user.name != ANONYMOUS {
        connection.place.card.known(&user.tenant());
        connection.place.card.is_for(attributes::namespace(&path));
    }
    request.extensions_mut().insert(Caller(user));
    let answer = tokio::time::timeout(connection.patience.streams(), next.run(request)).await;
    answer.unwrap_or_else(|_| StatusCode::GATEWAY_TIMEOUT.into_response())
}

#[cfg(test)]
mod tests {
    use bridge_serve::Bounds;

    use super::*;

    #[test]
    fn requests_count_against_the_tenant_of_the_user_or_the_address() {
        let of = |name: Option<&str>, peer: Option<&str>| {
            let mut request = Extensions::new();
            if let Some(name) = name {
                let user = User { name: name.to_owned(), ..User::default() };
                request.insert(Caller(Arc::new(user)));
            }
            let peer = peer.map(|peer| peer.parse().expect("an address"));
            request.insert(Connection { peer, ..Connection::of_a_test(Bounds::SECURED) });
            client(&request)
        };
        assert_eq!(of(Some("admin"), Some("10.0.0.1:5")), "user admin");
        let account = "user system:serviceaccount:team";
        assert_eq!(of(Some("system:serviceaccount:team:a"), None), account);
        assert_eq!(of(Some("system:serviceaccount:team:b"), None), account);
        assert_eq!(of(Some(ANONYMOUS), Some("10.0.0.1:5")), "address 10.0.0.1");
        assert_eq!(of(None, Some("[2001:db8::7]:5")), "address 2001:db8::");
    }
}
