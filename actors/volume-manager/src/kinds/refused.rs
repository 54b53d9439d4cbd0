//! Kinds that upstream has and whose drivers are disabled there: a pod with such a volume waits, and says why.

use super::{VolumeKind, Wanted};
use crate::source::Source;
use crate::steps::VolumePlan;

/// gitRepo (row 10.14).
pub(super) const GIT_REPO: Refused = Refused {
    plugin: "kubernetes.io/git-repo",
    field: "gitRepo",
    reason: "git-repo volume plugin has been disabled; if necessary, it may be re-enabled by enabling the feature-gate `GitRepoVolumeDriver`",
};

/// A kind whose volumes are refused.
#[derive(Debug)]
pub(super) struct Refused {
    plugin: &'static str,
    field: &'static str,
    reason: &'static str,
}

impl VolumeKind for Refused {
    fn plugin(&self) -> &'static str {
        self.plugin
    }

    fn serves(&self, source: &Source) -> bool {
        source.field() == self.field
    }

    fn plan(&self, _: &Wanted<'_>) -> Result<VolumePlan, String> {
        Err(self.reason.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use crate::kinds::tests::plan;

    #[test]
    fn a_git_repository_is_refused_as_upstream_refuses_it() {
        let volume = serde_json::json!({"name": "v", "gitRepo": {"repository": "https://example.org/x"}});
        let error = plan(&volume, &[]).expect_err("the driver is disabled");
        assert!(error.starts_with("git-repo volume plugin has been disabled"), "{error}");
    }
}
