//! PURE: which version of CSI is spoken with a driver.

use std::fmt;

use super::access::go_quoted;
use super::says;

/// A version, of two or more numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version(Vec<u32>);

impl Version {
    /// A text as Kubernetes' `ParseGeneric` reads it: an optional `v`, numbers with dots between them, and anything.
    fn parse(text: &str) -> Result<Self, String> {
        let trimmed = text.trim();
        let digits = trimmed.strip_prefix('v').unwrap_or(trimmed);
        let mut numbers = Vec::new();
        let mut rest = digits;
        loop {
            let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            if end == 0 {
                break;
            }
            let component = &rest[..end];
            if numbers.is_empty() && component.starts_with('0') && component != "0" {
                let quoted = (go_quoted(component), go_quoted(text));
                return Err(format!("illegal zero-prefixed version component {} in {}", quoted.0, quoted.1));
            }
            let number = component.parse();
            numbers.push(number.map_err(|_| format!("illegal version string {}", go_quoted(text)))?);
            match rest[end..].strip_prefix('.') {
                Some(after) => rest = after,
                None => break,
            }
        }
        match numbers.len() {
            0 => Err(format!("could not parse {} as version", go_quoted(text))),
            1 => Err(format!("illegal version string {}", go_quoted(text))),
            _ => Ok(Self(numbers)),
        }
    }

    fn major(&self) -> u32 {
        self.0.first().copied().unwrap_or_default()
    }

    /// Missing numbers at the end count as 0.
    fn is_less(&self, other: &Self) -> bool {
        let number = |version: &Self, at: usize| version.0.get(at).copied().unwrap_or_default();
        let length = self.0.len().max(other.0.len());
        let mut pairs = (0..length).map(|at| (number(self, at), number(other, at)));
        pairs.find(|(own, theirs)| own != theirs).is_some_and(|(own, theirs)| own < theirs)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.iter().map(u32::to_string).collect::<Vec<_>>().join("."))
    }
}

/// The highest version that both sides speak: 1.x.
fn highest(versions: &[String]) -> Result<Version, String> {
    let mut highest: Option<Version> = None;
    let mut unread = None;
    for text in versions.iter().rev() {
        match Version::parse(text) {
            Err(error) => unread = Some(error),
            Ok(version) if version.major() > 1 => {}
            Ok(version) => {
                if highest.as_ref().is_none_or(|highest| highest.is_less(&version)) {
                    highest = Some(version);
                }
            }
        }
    }
    match highest {
        Some(version) if version.major() == 1 => Ok(version),
        Some(version) => Err(format!("highest supported version reported is {version}, must be v1.x")),
        None => Err(format!(
            "could not find a highest supported version from versions ([{}]) reported: {}",
            versions.join(" "),
            unread.as_deref().unwrap_or("<nil>")
        )),
    }
}

/// The version that is spoken with a driver. `other` is that of another driver of the same name.
///
/// # Errors
/// Upstream's message.
pub fn admit(driver: &str, versions: &[String], other: Option<&Version>) -> Result<Version, String> {
    let failed =
        |why: String| says(&format!("RegisterPlugin for CSI driver {} failed. {why}", go_quoted(driver)));
    if versions.is_empty() {
        return Err(failed("Plugin returned an empty list for supported versions".to_owned()));
    }
    let version = highest(versions).map_err(|error| {
        let listed = versions.iter().map(|version| go_quoted(version)).collect::<Vec<_>>().join(" ");
        failed(format!("None of the versions specified [{listed}] are supported. err={error}"))
    })?;
    match other {
        Some(other) if !other.is_less(&version) => Err(failed(format!(
            "Another driver with the same name is already registered with a higher supported version: {}",
            go_quoted(&other.to_string())
        ))),
        _ => Ok(version),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(versions: &[&str]) -> Vec<String> {
        versions.iter().map(|version| (*version).to_owned()).collect()
    }

    #[test]
    fn the_highest_version_1_is_spoken() {
        let highest = |versions: &[&str]| highest(&texts(versions)).map(|version| version.to_string());
        assert_eq!(highest(&["1.0.0"]), Ok("1.0.0".to_owned()));
        assert_eq!(highest(&["1.2.3-rc1", "v1.10", "2.0.0", "0.3"]), Ok("1.10".to_owned()));
        assert_eq!(
            highest(&["0.3.0"]),
            Err("highest supported version reported is 0.3.0, must be v1.x".to_owned())
        );
        assert_eq!(
            highest(&["2.0.0", "3.1"]),
            Err("could not find a highest supported version from versions ([2.0.0 3.1]) reported: <nil>"
                .to_owned())
        );
        assert!(highest(&["one"]).unwrap_err().ends_with("could not parse \"one\" as version"));
        assert!(highest(&["1"]).unwrap_err().ends_with("illegal version string \"1\""));
        assert!(highest(&["01.0"]).unwrap_err().contains("illegal zero-prefixed version component \"01\""));
    }

    #[test]
    fn a_second_driver_of_a_name_has_to_be_newer() {
        let admit = |versions: &[&str], other: Option<&str>| {
            let other = other.map(|other| Version::parse(other).unwrap());
            super::admit("d", &texts(versions), other.as_ref()).map(|version| version.to_string())
        };
        assert_eq!(admit(&["1.1"], Some("1.0.0")), Ok("1.1".to_owned()));
        let refused = "kubernetes.io/csi: RegisterPlugin for CSI driver \"d\" failed. Another driver with the same \
                       name is already registered with a higher supported version: \"1.0.0\"";
        assert_eq!(admit(&["1.0"], Some("1.0.0")), Err(refused.to_owned()));
        let empty = "kubernetes.io/csi: RegisterPlugin for CSI driver \"d\" failed. Plugin returned an empty list for \
                     supported versions";
        assert_eq!(admit(&[], None), Err(empty.to_owned()));
        assert!(
            admit(&["2.0"], None)
                .unwrap_err()
                .contains("None of the versions specified [\"2.0\"] are supported")
        );
    }
}
