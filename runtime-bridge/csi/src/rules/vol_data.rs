//! PURE: `vol_data.json`, in which the kubelet that mounts a volume notes what the one that unmounts it needs.

use std::collections::BTreeMap;

use pod_rules::go_json;

/// What is noted of a volume. Keys that are not known here are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolData(BTreeMap<String, String>);

/// Notes that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct VolDataError(String);

/// How long a volume lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifecycle {
    /// As a persistent volume.
    Persistent,
    /// As long as its pod.
    Ephemeral,
}

impl Lifecycle {
    /// Kubernetes' word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Persistent => "Persistent",
            Self::Ephemeral => "Ephemeral",
        }
    }
}

const SPEC_NAME: &str = "specVolID";
const HANDLE: &str = "volumeHandle";
const DRIVER: &str = "driverName";
const NODE: &str = "nodeName";
const ATTACHMENT: &str = "attachmentID";
const LIFECYCLE: &str = "volumeLifecycleMode";
const SE_LINUX: &str = "seLinuxMountContext";
/// Our own key, which the Go kubelet passes over.
const UNFINISHED: &str = "understudyUnfinished";

/// A volume of a pod, as it is noted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Noted<'a> {
    /// The name of the persistent volume, of an inline volume that of the volume in its pod.
    pub spec_name: &'a str,
    /// The volume's handle.
    pub volume_id: &'a str,
    /// The driver's name.
    pub driver: &'a str,
    /// The node's name.
    pub node: &'a str,
    /// The SELinux context that it is mounted with.
    pub se_linux: Option<&'a str>,
}

impl VolData {
    /// The notes beside the mount of a pod's volume.
    #[must_use]
    pub fn published(noted: &Noted<'_>, lifecycle: Lifecycle) -> Self {
        let mut data = Self::block(noted);
        data.set(LIFECYCLE, lifecycle.word());
        if let Some(context) = noted.se_linux {
            data.set(SE_LINUX, context);
        }
        data
    }

    /// The notes of a block device, which all its pods share.
    #[must_use]
    pub fn block(noted: &Noted<'_>) -> Self {
        let mut data = Self::staged(noted.driver, noted.volume_id, None);
        data.set(SPEC_NAME, noted.spec_name);
        data.set(NODE, noted.node);
        data.set(ATTACHMENT, &super::attachment::name(noted.volume_id, noted.driver, noted.node));
        data
    }

    /// The notes beside a staged volume.
    #[must_use]
    pub fn staged(driver: &str, volume_id: &str, se_linux: Option<&str>) -> Self {
        let mut data = Self::default();
        data.set(HANDLE, volume_id);
        data.set(DRIVER, driver);
        if let Some(context) = se_linux {
            data.set(SE_LINUX, context);
        }
        data
    }

    /// The same notes before the driver has said that it is done: what is mounted meanwhile shows nothing.
    #[must_use]
    pub fn unfinished(&self) -> Self {
        let mut data = self.clone();
        data.set(UNFINISHED, "true");
        data
    }

    /// Whether the driver has not said that it is done.
    #[must_use]
    pub fn is_unfinished(&self) -> bool {
        !self.get(UNFINISHED).is_empty()
    }

    fn set(&mut self, key: &str, value: &str) {
        self.0.insert(key.to_owned(), value.to_owned());
    }

    fn get(&self, key: &str) -> &str {
        self.0.get(key).map_or("", String::as_str)
    }

    /// Reads the notes of either kubelet; what stands behind them is passed over, as Go does.
    ///
    /// # Errors
    /// [`VolDataError`] when they are not an object of texts.
    pub fn read(text: &[u8]) -> Result<Self, VolDataError> {
        let mut values = serde_json::Deserializer::from_slice(text).into_iter::<BTreeMap<String, String>>();
        match values.next() {
            Some(Ok(values)) => Ok(Self(values)),
            Some(Err(error)) => Err(VolDataError(error.to_string())),
            None => Err(VolDataError("EOF".to_owned())),
        }
    }

    /// The text of the file, byte for byte as the Go kubelet writes it.
    #[must_use]
    pub fn text(&self) -> String {
        let entry =
            |(key, value): (&String, &String)| format!("{}:{}", go_json::string(key), go_json::string(value));
        format!("{{{}}}\n", self.0.iter().map(entry).collect::<Vec<_>>().join(","))
    }

    /// The driver's name; empty if it is not noted.
    #[must_use]
    pub fn driver(&self) -> &str {
        self.get(DRIVER)
    }

    /// The volume's handle; empty if it is not noted.
    #[must_use]
    pub fn volume_id(&self) -> &str {
        self.get(HANDLE)
    }

    /// The name of the persistent volume, or of the inline volume; empty if it is not noted.
    #[must_use]
    pub fn spec_name(&self) -> &str {
        self.get(SPEC_NAME)
    }

    /// The SELinux context that the volume is mounted with; empty without one.
    #[must_use]
    pub fn se_linux(&self) -> &str {
        self.get(SE_LINUX)
    }

    /// How long the volume lives; older kubelets did not note it of persistent volumes.
    #[must_use]
    pub fn lifecycle(&self) -> Lifecycle {
        match self.get(LIFECYCLE) {
            "Ephemeral" => Lifecycle::Ephemeral,
            _ => Lifecycle::Persistent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTED: Noted<'_> = Noted {
        spec_name: "pvc-1",
        volume_id: "handle<1>",
        driver: "d.example",
        node: "node-1",
        se_linux: None,
    };

    /// Texts as Go's encoder of maps writes them: keys in order, `<`, `>` and `&` escaped, a line's end.
    #[test]
    fn what_go_writes_is_written() {
        let id = super::super::attachment::name("handle<1>", "d.example", "node-1");
        let published = VolData::published(&NOTED, Lifecycle::Persistent).text();
        assert_eq!(
            published,
            format!(
                "{{\"attachmentID\":\"{id}\",\"driverName\":\"d.example\",\"nodeName\":\"node-1\",\
                 \"specVolID\":\"pvc-1\",\"volumeHandle\":\"handle\\u003c1\\u003e\",\
                 \"volumeLifecycleMode\":\"Persistent\"}}\n"
            )
        );
        let context = "system_u:object_r:container_file_t:s0:c1,c2";
        assert_eq!(
            VolData::staged("d.example", "h", Some(context)).text(),
            format!(
                "{{\"driverName\":\"d.example\",\"seLinuxMountContext\":\"{context}\",\"volumeHandle\":\"h\"}}\n"
            )
        );
        let block = VolData::block(&NOTED).text();
        assert!(
            !block.contains("volumeLifecycleMode") && block.contains("\"specVolID\":\"pvc-1\""),
            "{block}"
        );
    }

    #[test]
    fn what_go_wrote_is_read_and_written_again_byte_for_byte() {
        let inline = "{\"attachmentID\":\"csi-0\",\"driverName\":\"d\",\"later\":\"x\",\"nodeName\":\"n\",\
                      \"specVolID\":\"scratch\",\"volumeHandle\":\"csi-9\",\"volumeLifecycleMode\":\"Ephemeral\"}\n";
        let data = VolData::read(inline.as_bytes()).unwrap();
        assert_eq!((data.driver(), data.volume_id(), data.spec_name()), ("d", "csi-9", "scratch"));
        assert_eq!(data.lifecycle(), Lifecycle::Ephemeral);
        assert_eq!(data.text(), inline);
        for data in [
            VolData::published(&NOTED, Lifecycle::Ephemeral),
            VolData::published(&Noted { se_linux: Some("a:b"), ..NOTED }, Lifecycle::Persistent),
            VolData::block(&NOTED),
            VolData::staged("d", "h\"\\\n", None),
        ] {
            assert_eq!(VolData::read(data.text().as_bytes()), Ok(data));
        }
    }

    #[test]
    fn notes_tell_whether_the_driver_is_done() {
        let done = VolData::staged("d", "h", None);
        let read = VolData::read(done.unfinished().text().as_bytes()).unwrap();
        assert!(read.is_unfinished() && !done.is_unfinished());
        assert_eq!((read.driver(), read.volume_id()), ("d", "h"));
    }

    #[test]
    fn older_and_broken_notes() {
        let old =
            VolData::read(br#"{"driverName": "csi", "volumeHandle":"project/zone/test-vol1"} rest"#).unwrap();
        assert_eq!((old.lifecycle(), old.spec_name()), (Lifecycle::Persistent, ""));
        for broken in ["", "{", "[]", r#"{"driverName":7}"#] {
            assert!(VolData::read(broken.as_bytes()).is_err(), "{broken}");
        }
    }
}
