//! Tokens, and the reviews of tokens and of their users' permissions.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::refusal::Refusal;
use super::resources::Resource;
use super::rules::{text, time};

/// The most tokens that are known at a time; older ones are forgotten.
const TOKENS_MAX: usize = 1000;
const AUDIENCE: &str = "https://kubernetes.default.svc";

#[derive(Clone, Debug)]
struct Bearer {
    username: String,
    uid: String,
    groups: Vec<String>,
    audiences: Vec<String>,
    ends: Option<Timestamp>,
}

#[derive(Debug, Default)]
pub(super) struct Reviews {
    bearers: BTreeMap<String, Bearer>,
    order: VecDeque<String>,
    /// The allowed combinations of user, verb and resource with its subresource; `*` matches all.
    allowed: BTreeSet<(String, String, String)>,
}

fn texts(value: Option<&Value>) -> Vec<String> {
    let items = value.and_then(Value::as_array).into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

impl Reviews {
    fn keep(&mut self, token: String, bearer: Bearer) {
        if self.order.len() == TOKENS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.bearers.remove(&oldest);
        }
        self.order.push_back(token.clone());
        self.bearers.insert(token, bearer);
    }

    /// Adds a token that is valid for a user of these groups.
    pub fn accept(&mut self, token: &str, username: &str, groups: &[&str]) {
        let bearer = Bearer {
            username: username.to_owned(),
            uid: String::new(),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
            audiences: vec![AUDIENCE.to_owned()],
            ends: None,
        };
        self.keep(token.to_owned(), bearer);
    }

    pub fn allow(&mut self, user: &str, verb: &str, resource: &str) {
        self.allowed.insert((user.to_owned(), verb.to_owned(), resource.to_owned()));
    }

    /// Issues a token for a service account, as a `TokenRequest` asks for it.
    pub fn issue(
        &mut self,
        account: &Value,
        request: &Value,
        now: Timestamp,
        nonce: u64,
    ) -> Result<Value, Refusal> {
        let (namespace, name) = (text(account, "/metadata/namespace"), text(account, "/metadata/name"));
        let seconds = request.pointer("/spec/expirationSeconds").and_then(Value::as_i64).unwrap_or(3600);
        if !(600..=1 << 32).contains(&seconds) {
            let why = if seconds < 600 {
                "may not specify a duration less than 10 minutes"
            } else {
                "may not specify a duration larger than 2^32 seconds"
            };
            let message = format!(
                "TokenRequest.authentication.k8s.io {name:?} is invalid: spec.expirationSeconds: Invalid value: \
                 {seconds}: {why}"
            );
            return Err(Refusal::new(422, "Invalid", message));
        }
        let mut audiences = texts(request.pointer("/spec/audiences"));
        if audiences.is_empty() {
            audiences.push(AUDIENCE.to_owned());
        }
        let ends = now.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(now);
        let username = format!("system:serviceaccount:{namespace}:{name}");
        let uid = text(account, "/metadata/uid").to_owned();
        let claims = json!({"aud": audiences, "exp": ends.as_second(), "iat": now.as_second(), "iss": AUDIENCE,
            "jti": format!("{nonce:016x}"), "sub": username});
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let header = json!({"alg": "none", "kid": "memory"});
        let token = format!("{}.{}.{nonce:016x}", part(&header), part(&claims));
        let groups = ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
        let mut groups = groups.to_vec();
        groups.push("system:authenticated".to_owned());
        self.keep(
            token.clone(),
            Bearer { username, uid, groups, audiences: audiences.clone(), ends: Some(ends) },
        );
        let mut spec = request.get("spec").cloned().unwrap_or_else(|| json!({}));
        spec["audiences"] = json!(audiences);
        spec["expirationSeconds"] = seconds.into();
        Ok(json!({
            "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1",
            "metadata": {"name": name, "namespace": namespace, "creationTimestamp": time(now)},
            "spec": spec,
            "status": {"token": token, "expirationTimestamp": time(ends)},
        }))
    }

    pub fn review(&self, resource: &Resource, asked: &Value, now: Timestamp) -> Result<Value, Refusal> {
        if !asked.is_object() {
            return Err(Refusal::bad_request("the body must be an object"));
        }
        let mut answer = asked.clone();
        answer["kind"] = resource.kind.into();
        answer["apiVersion"] = resource.api_version().into();
        answer["status"] =
            if resource.plural == "tokenreviews" { self.who(asked, now) } else { self.may(asked) };
        Ok(answer)
    }

    fn who(&self, asked: &Value, now: Timestamp) -> Value {
        let known = self.bearers.get(text(asked, "/spec/token"));
        let Some(bearer) = known.filter(|bearer| bearer.ends.is_none_or(|ends| now < ends)) else {
            return json!({"user": {}, "error": "[invalid bearer token, unknown token]"});
        };
        let wanted = texts(asked.pointer("/spec/audiences"));
        let shared: Vec<&String> = bearer
            .audiences
            .iter()
            .filter(|audience| wanted.is_empty() || wanted.contains(audience))
            .collect();
        if shared.is_empty() {
            let error = format!(
                "[invalid bearer token, token audiences {:?} is invalid for the target audiences {wanted:?}]",
                bearer.audiences
            );
            return json!({"user": {}, "error": error});
        }
        json!({"authenticated": true, "audiences": shared,
            "user": {"username": bearer.username, "uid": bearer.uid, "groups": bearer.groups}})
    }

    fn may(&self, asked: &Value) -> Value {
        let (user, groups) = (text(asked, "/spec/user"), texts(asked.pointer("/spec/groups")));
        let (verb, target) = match asked.pointer("/spec/resourceAttributes") {
            Some(about) => {
                let (resource, sub) = (text(about, "/resource"), text(about, "/subresource"));
                let target = if sub.is_empty() { resource.to_owned() } else { format!("{resource}/{sub}") };
                (text(about, "/verb"), target)
            }
            None => (
                text(asked, "/spec/nonResourceAttributes/verb"),
                text(asked, "/spec/nonResourceAttributes/path").to_owned(),
            ),
        };
        let fits = |rule: &str, value: &str| rule == "*" || rule == value;
        let allowed = groups.iter().any(|group| group == "system:masters")
            || self
                .allowed
                .iter()
                .any(|(who, how, what)| fits(who, user) && fits(how, verb) && fits(what, &target));
        if allowed { json!({"allowed": true}) } else { json!({"allowed": false, "reason": ""}) }
    }
}
