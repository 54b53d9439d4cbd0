//! PURE: which files of a container's termination messages are removed (row 5.21). Each instance has one of its own, and the author
//! chooses how many instances there are, and how much they write.

/// So many files with a message stay, and as many empty ones: the message of the last instance is told as long as the pod is there,
/// and instances that could not be created, or have nothing to say, push none out.
const KEPT: usize = 4;

/// A file of a container's termination message.
pub(super) struct TerminationLog {
    /// The time of its last change, which no container can set: seconds, and nanoseconds.
    pub(super) changed: (i64, i64),
    pub(super) name: String,
    pub(super) is_empty: bool,
}

/// Whether a file has the name that kubelets give to termination messages: a number of eight digits.
pub(super) fn is_name(name: &str) -> bool {
    name.len() == 8 && name.bytes().all(|digit| digit.is_ascii_hexdigit())
}

/// The names of the files to remove.
pub(super) fn superfluous(mut all: Vec<TerminationLog>) -> Vec<String> {
    // The newest first.
    all.sort_by(|one, other| (other.changed, &other.name).cmp(&(one.changed, &one.name)));
    let (mut said, mut empty) = (0, 0);
    all.retain(|file| {
        let count = if file.is_empty { &mut empty } else { &mut said };
        *count += 1;
        *count > KEPT
    });
    all.into_iter().map(|file| file.name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_messages_stay_however_many_empty_files_are_newer() {
        let file = |second: i64| TerminationLog {
            changed: (second, 0),
            name: second.to_string(),
            is_empty: second >= 6,
        };
        assert_eq!(superfluous((0..6).map(file).collect()), ["1", "0"]);
        assert_eq!(superfluous((2..9).map(file).collect()), [""; 0]);
        assert_eq!(superfluous((2..12).map(file).collect()), ["7", "6"]);
    }

    #[test]
    fn only_names_of_kubelets_count() {
        assert!(is_name("0a1b2c3d"));
        for other in ["0a1b2c3", "0a1b2c3d0", "0a1b2c3x", ""] {
            assert!(!is_name(other), "{other:?}");
        }
    }
}
