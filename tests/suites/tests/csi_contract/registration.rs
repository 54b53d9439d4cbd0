//! The registration of plugins, with the driver's process and real sockets.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bridge_csi::plugins::{
    PluginKind, PluginMetrics, PluginNews, PluginOffer, PluginWatcher, Plugins, RegistrarClient,
    SocketDirectory,
};
use bridge_csi::{Candidate, CsiConnector, CsiMetrics, Deadlines, Drivers, Rpc};
use bridge_io::{Io, IoRuntime};
use csi_driver::DriverProcess;
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::time::timeout;

use crate::subject::{NAME, Outcome, process, words};

type Test = fn(&Stand);

pub const ALL: &[(&str, Test)] = &[
    ("a_driver_registers_goes_and_comes_back", comes_back),
    ("a_driver_that_is_refused_is_told_and_offered_again", refused),
    ("a_killed_driver_is_offered_again_when_its_socket_is_made_anew", killed),
    ("a_driver_that_does_not_know_its_node_yet_is_registered_later", later),
    ("a_socket_that_does_not_answer_holds_up_no_other", silent),
];

pub struct Stand {
    directory: tempfile::TempDir,
    io: IoRuntime,
}

pub fn run(test: Test) -> Outcome {
    let stand = Stand { directory: tempfile::tempdir().unwrap(), io: Io::start(2).unwrap() };
    match catch_unwind(AssertUnwindSafe(|| test(&stand))) {
        Ok(()) => Outcome::Passed,
        Err(panic) => Outcome::Failed(words(&*panic)),
    }
}

impl Stand {
    fn registry(&self) -> PathBuf {
        self.directory.path().join("registry")
    }

    fn watcher(&self) -> PluginWatcher {
        let sockets = SocketDirectory::new(self.io.io().lane().clone(), self.registry());
        let registrar = Arc::new(RegistrarClient::new(self.io.io()));
        PluginWatcher::start(
            &self.io.io(),
            Arc::new(sockets),
            registrar,
            [PluginKind::Csi],
            PluginMetrics::new().unwrap(),
        )
    }

    /// The driver's process, whose registration lies in the registry.
    fn driver(&self) -> DriverProcess {
        std::fs::create_dir_all(self.registry()).unwrap();
        process(self.directory.path(), Some(&self.registry()))
    }

    fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        let tokio = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        tokio.block_on(async { timeout(Duration::from_secs(30), future).await.expect("within 30 s") })
    }

    fn offered(&self, news: &mut BoxStream<'static, PluginNews>) -> PluginOffer {
        match self.wait(news.next()).expect("the watcher is there") {
            PluginNews::Offered(offer) => offer,
            PluginNews::Gone(gone) => panic!("{gone:?}"),
        }
    }

    fn gone(&self, news: &mut BoxStream<'static, PluginNews>) {
        match self.wait(news.next()).expect("the watcher is there") {
            PluginNews::Gone(gone) => assert_eq!(gone.facts.name, NAME),
            PluginNews::Offered(offer) => panic!("{offer:?}"),
        }
    }

    /// Waits until the registration has been told so often.
    fn told(&self, driver: &mut DriverProcess, times: usize) -> Vec<String> {
        self.wait(async {
            loop {
                let statuses: Vec<String> = serde_json::from_str(&driver.order("statuses").unwrap()).unwrap();
                if statuses.len() >= times {
                    return statuses;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
    }
}

fn comes_back(stand: &Stand) {
    let watcher = stand.watcher();
    let mut news = watcher.follow(PluginKind::Csi);
    let mut driver = stand.driver();
    let offer = stand.offered(&mut news);
    assert_eq!(
        (offer.facts.name.as_str(), offer.facts.versions.as_slice()),
        (NAME, &["1.0.0".to_owned()][..])
    );
    assert_eq!(Path::new(&offer.facts.endpoint), driver.endpoint());
    offer.accept();
    assert_eq!(stand.told(&mut driver, 1), [""]);
    driver.order("unregister").unwrap();
    stand.gone(&mut news);
    driver.order("register").unwrap();
    stand.offered(&mut news).accept();
    assert_eq!(stand.told(&mut driver, 1), [""]);
}

fn refused(stand: &Stand) {
    let watcher = stand.watcher();
    let mut news = watcher.follow(PluginKind::Csi);
    let mut driver = stand.driver();
    stand.offered(&mut news).invalid("another version");
    stand.offered(&mut news).accept();
    let words = "RegisterPlugin error -- plugin validation failed with err: another version";
    assert_eq!(stand.told(&mut driver, 2), [words, ""]);
}

fn killed(stand: &Stand) {
    let watcher = stand.watcher();
    let mut news = watcher.follow(PluginKind::Csi);
    let driver = stand.driver();
    stand.offered(&mut news).accept();
    drop(driver);
    assert!(stand.registry().join("reg.sock").exists(), "a killed process leaves its socket");
    // The next process makes the socket anew.
    let mut driver = stand.driver();
    let first = stand.wait(news.next()).expect("the watcher is there");
    assert!(matches!(first, PluginNews::Gone(_)), "{first:?}");
    stand.offered(&mut news).accept();
    assert_eq!(stand.told(&mut driver, 1), [""]);
}

fn later(stand: &Stand) {
    let watcher = stand.watcher();
    let mut driver = stand.driver();
    driver.order(&format!("fault {} 1 error Unavailable not yet", Rpc::NodeGetInfo)).unwrap();
    let connector = Arc::new(CsiConnector::new(stand.io.io(), Deadlines::default()));
    let drivers = Drivers::new(connector, stand.io.io(), CsiMetrics::new().unwrap());
    let mut news = watcher.follow(PluginKind::Csi);
    let register = |offer: &PluginOffer| {
        let facts = offer.facts.clone();
        let socket = offer.socket.clone();
        let (name, endpoint, versions) = (facts.name, facts.endpoint, facts.versions);
        stand.wait(drivers.register(Candidate { name, endpoint, versions, socket }))
    };
    let offer = stand.offered(&mut news);
    let error = register(&offer).expect_err("it does not know its node").to_string();
    assert!(error.contains("not yet"), "{error}");
    offer.failed(error);
    let offer = stand.offered(&mut news);
    assert_eq!(register(&offer).expect("now it knows").node_id, format!("node-of-{NAME}"));
    offer.accept();
    let statuses = stand.told(&mut driver, 2);
    assert!(statuses[0].contains("not yet") && statuses[1].is_empty(), "{statuses:?}");
}

fn silent(stand: &Stand) {
    std::fs::create_dir_all(stand.registry()).unwrap();
    // It takes connections into its backlog and answers nothing.
    let _silent = std::os::unix::net::UnixListener::bind(stand.registry().join("a-silent.sock")).unwrap();
    let watcher = stand.watcher();
    let mut news = watcher.follow(PluginKind::Csi);
    let since = std::time::Instant::now();
    let mut driver = stand.driver();
    stand.offered(&mut news).accept();
    assert_eq!(stand.told(&mut driver, 1), [""]);
    assert!(since.elapsed() < Duration::from_secs(10), "{:?}", since.elapsed());
}
