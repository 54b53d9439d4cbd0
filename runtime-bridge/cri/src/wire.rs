//! The generated messages and services of `proto/cri`, and hand-written parts that cannot be generated.

use std::fmt;

#[allow(missing_docs, clippy::all, clippy::pedantic, rustdoc::all)]
mod generated {
    tonic::include_proto!("runtime.v1");
}

pub use generated::*;

impl PodSandboxConfig {
    /// The encoded message, for actors that only pass it on.
    pub fn to_bytes(&self) -> Vec<u8> {
        prost::Message::encode_to_vec(self)
    }

    /// Decodes the bytes of [`to_bytes`](Self::to_bytes); `None` if they are no such message.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        prost::Message::decode(bytes).ok()
    }
}

impl fmt::Debug for AuthConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthConfig")
            .field("username", &self.username)
            .field("server_address", &self.server_address)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_do_not_reach_a_log() {
        let auth = AuthConfig {
            username: "robot".into(),
            password: "secret-1".into(),
            auth: "secret-2".into(),
            server_address: "registry.local".into(),
            identity_token: "secret-3".into(),
            registry_token: "secret-4".into(),
        };
        let shown = format!("{:?}", PullImageRequest { auth: Some(auth), ..Default::default() });
        assert!(shown.contains("robot") && !shown.contains("secret"), "{shown}");
    }
}
