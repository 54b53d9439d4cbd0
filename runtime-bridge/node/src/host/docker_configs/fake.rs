use std::path::Path;

use futures::FutureExt;
use futures::future::BoxFuture;

use super::{DockerConfigFile, DockerConfigs, SecretContent, candidates};
use crate::host::FakeDisk;
use bridge_io::NotRun;

/// Credential files on a [`FakeDisk`], of a kubelet whose root directory is `/var/lib/kubelet` and whose user's home is
/// `/root`. [`FakeDisk::fail`] takes `read_docker_config`.
#[derive(Debug, Clone)]
pub struct FakeDockerConfigs {
    disk: FakeDisk,
}

impl FakeDockerConfigs {
    /// The files of `disk`.
    pub fn new(disk: FakeDisk) -> Self {
        Self { disk }
    }
}

impl DockerConfigs for FakeDockerConfigs {
    fn read(&self) -> BoxFuture<'static, Result<Vec<DockerConfigFile>, NotRun>> {
        let all = candidates(Path::new("/var/lib/kubelet"), None, Some(Path::new("/root")));
        let found = all.into_iter().filter_map(|(path, format)| {
            let content = match self.disk.scripted_failure("read_docker_config", &path) {
                Some(reason) => Err(reason),
                None => Ok(SecretContent::new(self.disk.read(&path)?)),
            };
            Some(DockerConfigFile { path, format, content })
        });
        let found = found.collect();
        async move { Ok(found) }.boxed()
    }
}
