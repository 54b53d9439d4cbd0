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

/// The state of a container in a list or a status. What a number means that CRI does not have is unknown.
pub fn container_state(number: i32) -> ContainerState {
    ContainerState::try_from(number).unwrap_or(ContainerState::ContainerUnknown)
}

/// Whether a sandbox with this state is ready. One with a number that CRI does not have is not.
pub fn is_ready(number: i32) -> bool {
    number == PodSandboxState::SandboxReady as i32
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
    fn a_number_that_cri_does_not_have_is_no_state_of_its_own() {
        assert_eq!(container_state(0), ContainerState::ContainerCreated);
        assert_eq!(container_state(1), ContainerState::ContainerRunning);
        assert_eq!([-1, 4].map(container_state), [ContainerState::ContainerUnknown; 2]);
        assert_eq!([-1, 0, 1, 2].map(is_ready), [false, true, false, false]);
    }

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
