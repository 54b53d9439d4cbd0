//! What the kernel and programs of the machine tell.

use bridge_node::host::{FlexAnswer, SelinuxLabels};
use bridge_node::mounts::mount_points;
use bridge_node::stats::usage::parse;
use volume_manager::flex_answer as judged;

/// `/proc/self/mountinfo`.
pub fn mount_table(bytes: &[u8]) {
    let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count();
    let Ok(mounts) = mount_points(bytes) else { return };
    assert_eq!(mounts.len(), lines, "no mount is overlooked");
    for mount in mounts {
        let _ = mount.read_only();
        assert!(mount.path.as_os_str().len() <= bytes.len());
    }
}

/// Files of cgroups, of either version, those of pressure among them.
pub fn cgroup_files(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Some(pressure) = parse::pressure(&text) {
        let figures = [pressure.some.avg10, pressure.some.avg60, pressure.full.avg10, pressure.full.avg300];
        assert!(figures.iter().all(|figure| figure.is_finite()), "{pressure:?}");
    }
    let bounded = [parse::io_stat(&text), parse::blkio(&text, &text)];
    assert!(bounded.iter().all(|devices| devices.len() <= 256));
    let weights = parse::keyed(&text);
    let mut shares = weights.values().filter_map(|weight| parse::shares(*weight));
    assert!(shares.all(|one| (2..=262_144).contains(&one)));
    assert!(parse::pids(&text).count() <= text.lines().count());
    for is_v2 in [false, true] {
        assert!(parse::cgroup_of(&text, is_v2).is_none_or(|path| text.contains(&path)));
    }
}

/// Files of `/proc`.
pub fn proc_files(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    assert!(parse::interfaces(&text, 32).is_none_or(|found| found.len() <= 32));
    assert!(parse::partitions(&text).len() <= 4096);
    let _ = (parse::disk(&text, (8, 0)), parse::boot_second(&text), parse::files_max(&text));
    if let Some(found) = parse::processors(&text) {
        assert!(found.logical as usize <= text.lines().count(), "{found:?}");
    }
}

/// SELinux' file of the labels of containers.
pub fn selinux_contexts(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let Some(labels) = SelinuxLabels::parse(&text) else { return };
    for (user, level) in [(None, None), (Some("user_u"), None), (None, Some("s0:c1,c2"))] {
        let label = labels.of_files(user, level);
        assert!(label.is_none_or(|label| label.len() <= text.len() + 64));
    }
}

/// The answer of a FlexVolume driver: what it wrote to its standard output, and behind the first blank line to its standard
/// error.
pub fn flex_answer(bytes: &[u8]) {
    let blank = bytes.windows(2).position(|two| two == b"\n\n").unwrap_or(bytes.len());
    let (out, err) = (bytes[..blank].to_vec(), bytes[blank..].to_vec());
    for failed in [None, Some("exit status 1".to_owned())] {
        let answer = FlexAnswer { failed, out: out.clone(), err: err.clone() };
        if let Err(undone) = judged("vendor/driver", "mount", &answer) {
            let text = undone.text();
            assert!(text.len() < 16_384, "{text}");
        }
    }
}
