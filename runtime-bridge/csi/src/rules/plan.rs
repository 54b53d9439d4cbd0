//! PURE: the order of steps by which a volume comes to a pod and goes from it, and what a failed step leaves behind.

use super::capabilities::Capabilities;
use crate::error::Progress;

/// What a volume is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A persistent volume with a file system.
    Filesystem,
    /// A persistent volume that pods use as a device.
    Block,
    /// A volume inline in its pod: neither attached nor staged.
    Inline,
}

/// What is known of a stage or a publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Known {
    /// It is not done.
    No,
    /// It may be done, or under way: it is done again, or undone, by the driver.
    Maybe,
    /// It is done.
    Yes,
}

/// What the order of steps follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// What the volume is.
    pub kind: Kind,
    /// Whether the driver's volumes are attached: [`super::policy::DriverPolicy::attach_required`].
    pub attach_required: bool,
    /// What the driver can do.
    pub able: Capabilities,
    /// Whether the volume is staged on the node.
    pub staged: Known,
    /// Whether the volume is published to this pod.
    pub published: Known,
    /// Whether the volume shall be published again, with new tokens: `requiresRepublish`.
    pub republish: bool,
    /// Whether the kubelet gives the volume to the pod's group: [`super::policy::kubelet_sets_group`].
    pub sets_group: bool,
    /// Whether other pods of this node use the volume.
    pub others: bool,
}

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The VolumeAttachment has to say that the volume is attached; what it tells goes with the later steps.
    AwaitAttachment,
    /// The directory to stage at, and the notes beside it, are made. Of a block device the notes are made even if the driver
    /// does not stage.
    NoteStaged,
    /// `NodeStageVolume`.
    Stage,
    /// The directory above the target, and the notes in it, are made. Of a block device the directory of published files.
    NotePublished,
    /// `NodePublishVolume`.
    Publish,
    /// The files are given to the pod's group.
    SetGroup,
    /// The pod's link and the global map of a block device are made.
    MapDevice,
    /// The pod's link and the global map of a block device are undone.
    UnmapDevice,
    /// `NodeUnpublishVolume`.
    Unpublish,
    /// The target, if no mount is on it, and the notes beside it are removed.
    ForgetPublished,
    /// `NodeUnstageVolume`.
    Unstage,
    /// What was made to stage at, if no mount is on it, and the notes beside it are removed.
    ForgetStaged,
}

/// The steps that bring the volume to the pod from where things are; none: it is there.
#[must_use]
pub fn set_up(facts: &Facts) -> Vec<Step> {
    let mut steps = Vec::new();
    let is_persistent = facts.kind != Kind::Inline;
    if is_persistent && facts.staged != Known::Yes {
        if facts.able.stage_unstage {
            steps.extend([Step::NoteStaged, Step::Stage]);
        } else if facts.kind == Kind::Block {
            steps.push(Step::NoteStaged);
        }
    }
    if facts.published != Known::Yes || facts.republish {
        steps.extend([Step::NotePublished, Step::Publish]);
        if facts.sets_group && facts.kind != Kind::Block {
            steps.push(Step::SetGroup);
        }
    }
    if facts.kind == Kind::Block && facts.published != Known::Yes {
        steps.push(Step::MapDevice);
    }
    if is_persistent && facts.attach_required && !steps.is_empty() {
        steps.insert(0, Step::AwaitAttachment);
    }
    steps
}

/// The steps that take the volume from the pod, and from the node when no other pod uses it.
#[must_use]
pub fn tear_down(facts: &Facts) -> Vec<Step> {
    let mut steps = Vec::new();
    if facts.published != Known::No {
        if facts.kind == Kind::Block {
            steps.push(Step::UnmapDevice);
        }
        steps.extend([Step::Unpublish, Step::ForgetPublished]);
    }
    if facts.kind != Kind::Inline && !facts.others && facts.staged != Known::No {
        if facts.able.stage_unstage {
            steps.push(Step::Unstage);
        }
        steps.push(Step::ForgetStaged);
    }
    steps
}

/// What is known after the driver has answered a stage or a publish; `failure`: what a failure leaves behind.
#[must_use]
pub fn after_doing(before: Known, failure: Option<Progress>) -> Known {
    match failure {
        None => Known::Yes,
        Some(Progress::NotBegun) => before,
        Some(Progress::Uncertain) => before.max(Known::Maybe),
        // A volume that was there before is there still: a second publish that failed undoes nothing.
        Some(Progress::Finished) if before == Known::Yes => Known::Yes,
        Some(Progress::Finished) => Known::No,
    }
}

/// What is known after the driver has answered an unstage or an unpublish.
#[must_use]
pub fn after_undoing(before: Known, failure: Option<Progress>) -> Known {
    match failure {
        None => Known::No,
        Some(Progress::NotBegun) => before,
        Some(_) => before.min(Known::Maybe),
    }
}

/// The step that clears away what a failed step was prepared with: only after a failure for sure, and only where this process
/// has seen that the volume was not there before (`began`). What an earlier process may have done is only undone by the driver.
#[must_use]
pub fn clear_away(failed: Step, began: bool, progress: Progress) -> Option<Step> {
    match (failed, began, progress) {
        (Step::Stage, true, Progress::Finished) => Some(Step::ForgetStaged),
        (Step::Publish, true, Progress::Finished) => Some(Step::ForgetPublished),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Known; 3] = [Known::No, Known::Maybe, Known::Yes];

    /// Every combination of facts.
    fn every(mut visit: impl FnMut(Facts)) {
        for kind in [Kind::Filesystem, Kind::Block, Kind::Inline] {
            for bits in 0..32_u8 {
                let bit = |at: u8| bits & (1 << at) != 0;
                for (staged, published) in ALL.into_iter().flat_map(|one| ALL.map(|other| (one, other))) {
                    let able = Capabilities { stage_unstage: bit(0), ..Default::default() };
                    let (attach_required, republish, sets_group) = (bit(1), bit(2), bit(3));
                    let others = bit(4);
                    visit(Facts {
                        kind,
                        attach_required,
                        able,
                        staged,
                        published,
                        republish,
                        sets_group,
                        others,
                    });
                }
            }
        }
    }

    #[test]
    fn a_volume_is_staged_before_it_is_published_and_what_is_there_is_left_alone() {
        every(|facts| {
            let steps = set_up(&facts);
            let at = |step| steps.iter().position(|one| *one == step);
            assert!(
                at(Step::Publish).is_none_or(|publish| at(Step::Stage).is_none_or(|stage| stage < publish))
            );
            assert_eq!(at(Step::Stage).is_some(), {
                facts.kind != Kind::Inline && facts.able.stage_unstage && facts.staged != Known::Yes
            });
            assert_eq!(at(Step::Publish).is_some(), facts.published != Known::Yes || facts.republish);
            assert!(at(Step::AwaitAttachment).is_none_or(|at| at == 0 && steps.len() > 1));
            // The driver undoes only what is noted.
            let noted = |step, note| at(step).is_none_or(|step| at(note).is_some_and(|note| note < step));
            assert!(noted(Step::Stage, Step::NoteStaged) && noted(Step::Publish, Step::NotePublished));
        });
    }

    #[test]
    fn a_volume_is_unstaged_after_the_last_pod_and_not_before_it_is_unpublished() {
        every(|facts| {
            let steps = tear_down(&facts);
            let at = |step| steps.iter().position(|one| *one == step);
            assert_eq!(at(Step::Unpublish).is_some(), facts.published != Known::No);
            let unstages = facts.kind != Kind::Inline
                && facts.able.stage_unstage
                && !facts.others
                && facts.staged != Known::No;
            assert_eq!(at(Step::Unstage).is_some(), unstages);
            let order = [
                Step::UnmapDevice,
                Step::Unpublish,
                Step::ForgetPublished,
                Step::Unstage,
                Step::ForgetStaged,
            ];
            let places: Vec<_> = order.into_iter().filter_map(at).collect();
            assert!(places.is_sorted(), "{steps:?}");
        });
    }

    #[test]
    fn steps_that_succeed_lead_to_an_end() {
        every(|facts| {
            let can_stage = facts.kind != Kind::Inline && facts.able.stage_unstage;
            let staged = if can_stage || facts.kind == Kind::Block { Known::Yes } else { facts.staged };
            let there = Facts { staged, published: Known::Yes, republish: false, ..facts };
            assert_eq!(set_up(&there), []);
            let gone = Facts { staged: Known::No, published: Known::No, ..facts };
            assert_eq!(tear_down(&gone), []);
        });
    }

    #[test]
    fn an_answer_that_is_lost_is_neither_done_nor_undone() {
        let uncertain = Some(Progress::Uncertain);
        assert_eq!(
            ALL.map(|before| after_doing(before, uncertain)),
            [Known::Maybe, Known::Maybe, Known::Yes]
        );
        assert_eq!(
            ALL.map(|before| after_undoing(before, uncertain)),
            [Known::No, Known::Maybe, Known::Maybe]
        );
        let finished = Some(Progress::Finished);
        assert_eq!(ALL.map(|before| after_doing(before, finished)), [Known::No, Known::No, Known::Yes]);
        assert_eq!(ALL.map(|before| after_doing(before, Some(Progress::NotBegun))), ALL);
        assert_eq!(ALL.map(|before| after_undoing(before, None)), [Known::No; 3]);
    }

    #[test]
    fn only_a_failure_for_sure_is_cleared_away() {
        let cleared = |began, progress| clear_away(Step::Publish, began, progress);
        assert_eq!(cleared(true, Progress::Finished), Some(Step::ForgetPublished));
        assert_eq!(cleared(false, Progress::Finished), None, "an earlier process may have published it");
        assert_eq!(cleared(true, Progress::Uncertain), None);
        assert_eq!(clear_away(Step::Stage, true, Progress::Finished), Some(Step::ForgetStaged));
        assert_eq!(clear_away(Step::Unpublish, true, Progress::Finished), None);
    }
}
