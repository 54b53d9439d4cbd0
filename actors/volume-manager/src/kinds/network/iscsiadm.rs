//! PURE: what `iscsiadm` is asked for and what it says; the arguments are upstream's.

use std::collections::BTreeMap;

use bridge_node::host::{DisksError, IscsiAnswer, IscsiSession, SeenDisks};

use super::disk::Target;
use super::note::Note;

/// How the program says that there is such a session or interface already.
const EXISTS: i32 = 15;
/// How it says that there is no such session, or nothing at all to do it with.
const NO_SESSION: i32 = 2;
const NO_OBJECTS: i32 = 21;
/// How the reason begins of one that has ended by itself.
const ENDED: &str = "exit status";
/// The most characters of what it said that an error shows.
const SAID_CHARS_MAX: usize = 600;
/// The settings of CHAP that a Secret may have, of a discovery and of a session.
pub(super) const OF_DISCOVERY: [&str; 4] = [
    "discovery.sendtargets.auth.username",
    "discovery.sendtargets.auth.password",
    "discovery.sendtargets.auth.username_in",
    "discovery.sendtargets.auth.password_in",
];
pub(super) const OF_SESSION: [&str; 4] = [
    "node.session.auth.username",
    "node.session.auth.password",
    "node.session.auth.username_in",
    "node.session.auth.password_in",
];

fn words(words: &[&str], more: &[&str]) -> Vec<String> {
    words.iter().chain(more).map(|word| (*word).to_owned()).collect()
}

/// About the targets of a portal.
pub(super) fn discovery(portal: &str, iface: &str, more: &[&str]) -> Vec<String> {
    words(&["-m", "discoverydb", "-t", "sendtargets", "-p", portal, "-I", iface], more)
}

/// About a target at a portal.
pub(super) fn node(portal: &str, iqn: &str, iface: &str, more: &[&str]) -> Vec<String> {
    words(&["-m", "node", "-p", portal, "-T", iqn, "-I", iface], more)
}

/// About an interface of the initiator.
pub(super) fn iface(iface: &str, more: &[&str]) -> Vec<String> {
    words(&["-m", "iface", "-I", iface], more)
}

/// What changes a setting.
pub(super) fn set<'a>(name: &'a str, value: &'a str) -> [&'a str; 6] {
    ["-o", "update", "-n", name, "-v", value]
}

/// What the program said, short enough for people.
pub(super) fn said(text: &str) -> String {
    text.chars().take(SAID_CHARS_MAX).collect()
}

/// What the program said, or why it has failed: output and reason.
pub(super) fn judged(answer: Result<IscsiAnswer, DisksError>) -> Result<String, (String, String)> {
    match answer {
        Ok(answer) if answer.is_fine() => Ok(answer.said),
        Ok(answer) => Err((said(&answer.said), format!("{ENDED} {}", answer.code))),
        Err(error) => Err((String::new(), error.to_string())),
    }
}

/// Whether the program has ended by itself, by the reason why it has failed.
pub(super) fn has_ended(why: &str) -> bool {
    why.starts_with(ENDED)
}

/// Whether an interface of the name is there after it was to be made.
pub(super) fn is_made(answer: &IscsiAnswer) -> bool {
    answer.is_fine() || answer.code == EXISTS
}

/// Whether what was to go is gone.
pub(super) fn is_gone(answer: &IscsiAnswer) -> bool {
    answer.is_fine() || matches!(answer.code, NO_SESSION | NO_OBJECTS)
}

/// The settings of an interface that another one is given.
///
/// # Errors
/// Upstream's text: they cannot be read.
pub(super) fn settings(shown: &str) -> Result<BTreeMap<String, String>, String> {
    let mut settings = BTreeMap::new();
    for line in shown.lines() {
        if !line.starts_with("iface.") || line.contains("<empty>") {
            continue;
        }
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [name, "=", value] = fields[..] else {
            return Err(format!("error: invalid iface setting: [{}]", fields.join(" ")));
        };
        // The name of an interface does not change.
        if name != "iface.iscsi_ifacename" {
            settings.insert(name.to_owned(), value.to_owned());
        }
    }
    Ok(settings)
}

/// Whether an interface says by which transport it works.
pub(super) fn has_transport(shown: &str) -> bool {
    shown.lines().any(|line| line.starts_with("iface.transport_name = "))
}

/// The session with the target through this portal.
pub(super) fn session<'s>(seen: &'s SeenDisks, target: &Target, portal: &str) -> Option<&'s IscsiSession> {
    session_of(seen, &target.iqn, &target.iface, portal)
}

/// The session of this name, interface and portal.
pub(super) fn session_of<'s>(
    seen: &'s SeenDisks,
    iqn: &str,
    iface: &str,
    portal: &str,
) -> Option<&'s IscsiSession> {
    seen.sessions
        .iter()
        .find(|session| session.target == iqn && session.iface == iface && session.portals.contains(portal))
}

/// The maker of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Maker {
    /// The kubelet, for this volume or another one.
    Kubelet,
    /// Something else of the node: the session stays.
    Node,
}

/// The maker of a session that is there, if the volume may use it.
///
/// # Errors
/// It was made with other names than the volume's: what they give access to is not the volume's.
pub(super) fn maker<'n>(
    session: &IscsiSession,
    target: &Target,
    portal: &str,
    own: &Note,
    others: impl IntoIterator<Item = &'n Note>,
) -> Result<Maker, String> {
    let has = |note: &Note| note.has_session(&target.iqn, portal, &target.iface);
    if has(own) {
        return Ok(Maker::Kubelet);
    }
    let (iqn, iface) = (&target.iqn, &target.iface);
    let other = || {
        format!(
            "iscsi: target {iqn} is logged in to through {portal} and interface {iface} with other names than the volume's"
        )
    };
    match others.into_iter().find(|note| has(note)) {
        Some(note) if note.access == own.access => Ok(Maker::Kubelet),
        None if session.username.is_empty() && own.access.is_empty() => Ok(Maker::Node),
        Some(_) | None => Err(other()),
    }
}

/// Whether the volume may use its interface.
///
/// # Errors
/// It was made for a volume with other names.
pub(super) fn may_use<'n>(
    target: &Target,
    own: &Note,
    others: impl IntoIterator<Item = &'n Note>,
) -> Result<(), String> {
    let is_anothers = |note: &&Note| {
        let is_it = note.iface == target.iface || note.iface == target.init_iface;
        is_it && note.has_own_iface && note.access != own.access
    };
    match others.into_iter().find(is_anothers) {
        Some(note) => Err(format!("iscsi: interface {} is that of a volume with other names", note.iface)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(iface: &str) -> Target {
        Target {
            portals: vec!["p:1".to_owned()],
            iqn: "iqn.a".to_owned(),
            lun: 0,
            init_iface: "default".to_owned(),
            iface: iface.to_owned(),
            initiator: None,
            chap_discovery: false,
            chap_session: false,
            secret: None,
        }
    }

    fn session(username: &str) -> IscsiSession {
        IscsiSession {
            host: 1,
            target: "iqn.a".to_owned(),
            iface: "default".to_owned(),
            username: username.to_owned(),
            portals: ["p:1".to_owned()].into(),
            disks: BTreeMap::new(),
        }
    }

    fn note(access: &str, is_maker: bool) -> Note {
        let logged_in = is_maker.then(|| "p:1".to_owned()).into_iter().collect();
        let (access, iqn, iface) = (access.to_owned(), "iqn.a".to_owned(), "default".to_owned());
        Note { access, iqn, iface, logged_in, ..Note::default() }
    }

    #[test]
    fn a_session_is_shared_by_volumes_with_the_same_names_alone() {
        let of = |username: &str, own: &Note, others: &[Note]| {
            maker(&session(username), &target("default"), "p:1", own, others).ok()
        };
        assert_eq!(of("me", &note("me", true), &[]), Some(Maker::Kubelet), "its own");
        assert_eq!(of("me", &note("me", false), &[note("me", true)]), Some(Maker::Kubelet));
        assert_eq!(of("me", &note("you", false), &[note("me", true)]), None, "with other names");
        assert_eq!(of("me", &note("", false), &[note("me", true)]), None, "with none");
        assert_eq!(of("", &note("", false), &[]), Some(Maker::Node));
        assert_eq!(of("me", &note("", false), &[]), None, "of people, with a name");
        assert_eq!(of("", &note("me", false), &[]), None, "of people, and the volume has a name");
    }

    #[test]
    fn an_interface_of_one_volume_is_no_other_ones() {
        let of_volume = Note { has_own_iface: true, iface: "p:1:v".to_owned(), ..note("me", false) };
        let named = Target { init_iface: "p:1:v".to_owned(), ..target("p:1:v") };
        assert!(may_use(&named, &note("", false), [&of_volume]).is_err(), "a volume that names it");
        assert!(
            may_use(&target("p:1:v"), &note("you", false), [&of_volume]).is_err(),
            "one of the same name"
        );
        assert!(may_use(&target("p:1:v"), &note("me", false), [&of_volume]).is_ok());
        assert!(may_use(&target("default"), &note("", false), [&of_volume]).is_ok());
    }

    #[test]
    fn what_the_program_says_is_read_as_upstream_reads_it() {
        let shown = "# BEGIN RECORD 2.0\niface.iscsi_ifacename = default\niface.transport_name = tcp\n\
                     iface.hwaddress = <empty>\niface.mtu = 0\n# END RECORD\n";
        let settings_of = settings(shown).expect("settings");
        let expected = [("iface.mtu", "0"), ("iface.transport_name", "tcp")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(settings_of, expected.into());
        assert!(has_transport(shown) && !has_transport("iface.mtu = 0\n"));
        assert_eq!(
            settings("iface.mtu is 0\n"),
            Err("error: invalid iface setting: [iface.mtu is 0]".to_owned())
        );
        let of = |code: i32| IscsiAnswer { code, said: "why\n".to_owned() };
        assert_eq!(judged(Ok(of(0))), Ok("why\n".to_owned()));
        assert_eq!(judged(Ok(of(24))), Err(("why\n".to_owned(), "exit status 24".to_owned())));
        let late = judged(Err(DisksError::NotEnded { why: "it has not ended within 1 s".to_owned() }));
        assert!(has_ended("exit status 24") && late.is_err_and(|(_, why)| !has_ended(&why)));
        assert!(is_gone(&of(21)) && is_gone(&of(2)) && !is_gone(&of(24)) && is_made(&of(15)));
        let login = node("p:1", "iqn.a", "default", &["--login"]).join(" ");
        assert_eq!(login, "-m node -p p:1 -T iqn.a -I default --login");
        assert_eq!(
            discovery("p:1", "i", &["--discover"]).join(" "),
            "-m discoverydb -t sendtargets -p p:1 -I i --discover"
        );
    }
}
