//! The administrator's client of the API server: blocking calls, and objects as JSON.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bridge_io::{Io, IoRuntime};
use bridge_kube::{
    ApiClient, ApiError, ConnectSettings, Delete, FileIdentity, Kubeconfig, Object, Patch, RateLimit, Select,
};
use serde_json::Value;

/// The deadline of calls: generous, for machines under load.
const DEADLINE: Duration = Duration::from_secs(60);

/// The administrator's client.
pub struct Api {
    client: ApiClient,
    _io: Arc<IoRuntime>,
}

impl Api {
    pub fn new(admin: &Path) -> Self {
        let io = Io::start(1).expect("an I/O runtime");
        let text = std::fs::read_to_string(admin).expect("the administrator's kubeconfig");
        let kubeconfig = Kubeconfig::read(admin, &text).expect("the administrator's kubeconfig");
        let settings = ConnectSettings {
            identity: Arc::new(FileIdentity::new(kubeconfig.user.clone())),
            kubeconfig,
            user_agent: "understudy-cluster/1".to_owned(),
            http1_only: false,
        };
        let unlimited = RateLimit { per_second: 0.0, burst: 0 };
        let client = ApiClient::connected(&settings, &io.io(), unlimited, DEADLINE);
        Self { client: client.expect("the administrator"), _io: Arc::new(io) }
    }

    /// Creates an object.
    pub fn try_create<K: Object>(&self, object: Value) -> Result<Value, ApiError> {
        let object: K = serde_json::from_value(object).expect("an object of this kind");
        block_on(self.client.create(&object)).map(json)
    }

    /// # Panics
    /// The server refuses it.
    #[track_caller]
    pub fn create<K: Object>(&self, object: Value) -> Value {
        self.try_create::<K>(object).unwrap_or_else(|error| panic!("{error}"))
    }

    /// An object; `None` if it does not exist.
    pub fn get<K: Object>(&self, namespace: Option<&str>, name: &str) -> Result<Option<Value>, String> {
        match block_on(self.client.get::<K>(namespace, name)) {
            Ok(object) => Ok(Some(json(object))),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    pub fn list<K: Object>(&self, select: &Select) -> Result<Vec<Value>, String> {
        let all = block_on(self.client.list::<K>(select)).map_err(|error| error.to_string())?;
        Ok(all.into_iter().map(json).collect())
    }

    /// A JSON merge patch.
    #[track_caller]
    pub fn merge<K: Object>(&self, namespace: Option<&str>, name: &str, patch: Value) {
        let patched = block_on(self.client.patch::<K>(namespace, name, &Patch::Merge(patch)));
        patched.unwrap_or_else(|error| panic!("{error}"));
    }

    /// A JSON merge patch of the status.
    #[track_caller]
    pub fn merge_status<K: Object>(&self, namespace: Option<&str>, name: &str, patch: Value) {
        let patched = block_on(self.client.patch_status::<K>(namespace, name, &Patch::Merge(patch)));
        patched.unwrap_or_else(|error| panic!("{error}"));
    }

    /// Deletes an object, which may have gone already.
    pub fn delete<K: Object>(&self, namespace: Option<&str>, name: &str, grace: Option<i64>) {
        let how = Delete { grace_seconds: grace, uid: None };
        if let Err(error) = block_on(self.client.delete::<K>(namespace, name, &how)) {
            assert!(error.is_not_found(), "{error}");
        }
    }
}

fn json(object: impl Object) -> Value {
    serde_json::to_value(object).expect("objects are JSON")
}

/// Waits as an actor's thread does: without I/O of its own.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    tokio.block_on(future)
}
