use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::fake::{FakeDriver, FakePlugins};

const SOCKET: &str = "/registry/d.sock";

fn watcher(plugins: &FakePlugins) -> PluginWatcher {
    let registrar = Arc::new(plugins.clone());
    PluginWatcher::start(
        &Io::current(),
        Arc::new(plugins.clone()),
        registrar,
        [PluginKind::Csi],
        PluginMetrics::new().unwrap(),
    )
}

async fn next(news: &mut BoxStream<'static, PluginNews>) -> PluginNews {
    // On a paused clock the limit is reached at once when nothing else can happen.
    tokio::time::timeout(Duration::from_secs(600), news.next()).await.expect("news").expect("it follows")
}

async fn offered(news: &mut BoxStream<'static, PluginNews>) -> PluginOffer {
    match next(news).await {
        PluginNews::Offered(offer) => offer,
        other => panic!("{other:?}"),
    }
}

async fn gone(news: &mut BoxStream<'static, PluginNews>) -> PluginGone {
    match next(news).await {
        PluginNews::Gone(gone) => gone,
        other => panic!("{other:?}"),
    }
}

/// Waits until the plugin has been told so often.
async fn told(plugins: &FakePlugins, times: usize) -> Vec<Result<(), String>> {
    while plugins.statuses(SOCKET).len() < times {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    plugins.statuses(SOCKET)
}

#[tokio::test(start_paused = true)]
async fn a_driver_is_offered_registered_and_gone() {
    let plugins = FakePlugins::default();
    plugins.show_driver(&FakeDriver::new("d"));
    let watcher = watcher(&plugins);
    let mut news = watcher.follow(PluginKind::Csi);
    let offer = offered(&mut news).await;
    assert_eq!((offer.facts.name.as_str(), offer.facts.endpoint.as_str()), ("d", "/plugins/d.sock"));
    assert_eq!(plugins.statuses(SOCKET), [], "it is told after the follower has decided");
    offer.accept();
    assert_eq!(told(&plugins, 1).await, [Ok(())]);
    plugins.hide_driver("d");
    assert_eq!(gone(&mut news).await.socket, SOCKET);
    // Made anew, it is offered anew.
    plugins.show_driver(&FakeDriver::new("d"));
    offered(&mut news).await.accept();
    assert_eq!(told(&plugins, 2).await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_sockets_of_plugins_are_counted_while_they_are_there() {
    let plugins = FakePlugins::default();
    let metrics = PluginMetrics::new().unwrap();
    let registrar = Arc::new(plugins.clone());
    let watcher = PluginWatcher::start(
        &Io::current(),
        Arc::new(plugins.clone()),
        registrar,
        [PluginKind::Csi],
        metrics.clone(),
    );
    let shown = || {
        let collectors = metrics.collectors();
        let families = collectors.iter().flat_map(|collector| collector.collect());
        let series = families.flat_map(|family| family.get_metric().to_vec());
        let mut shown: Vec<String> = series
            .map(|one| {
                let labels: Vec<&str> = one.get_label().iter().map(|label| label.value()).collect();
                format!("{} {}", labels.join(" "), one.get_gauge().get_value())
            })
            .collect();
        shown.sort();
        shown
    };
    let mut news = watcher.follow(PluginKind::Csi);
    plugins.show_driver(&FakeDriver::new("d"));
    let offer = offered(&mut news).await;
    let desired = format!("{SOCKET} desired_state_of_world 1");
    while shown().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(shown(), std::slice::from_ref(&desired));
    offer.accept();
    told(&plugins, 1).await;
    while shown().len() < 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(shown(), [format!("{SOCKET} actual_state_of_world 1"), desired]);
    plugins.hide_driver("d");
    gone(&mut news).await;
    while !shown().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_driver_is_told_why_and_offered_again() {
    let plugins = FakePlugins::default();
    plugins.show_driver(&FakeDriver::new("d"));
    let watcher = watcher(&plugins);
    let mut news = watcher.follow(PluginKind::Csi);
    let since = Instant::now();
    offered(&mut news).await.failed("no node");
    let offer = offered(&mut news).await;
    assert!(since.elapsed() >= Duration::from_millis(500), "after a back-off");
    let words = "RegisterPlugin error -- plugin registration failed with err: no node";
    assert_eq!(told(&plugins, 1).await, [Err(words.to_owned())]);
    drop(offer);
    offered(&mut news).await.accept();
    assert_eq!(told(&plugins, 2).await[1], Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_silent_plugin_is_asked_again_and_a_deaf_one_is_taken_back() {
    let plugins = FakePlugins::default();
    plugins.silence(SOCKET, 3);
    plugins.deafen(SOCKET, "broken");
    plugins.show_driver(&FakeDriver::new("d"));
    let watcher = watcher(&plugins);
    let mut news = watcher.follow(PluginKind::Csi);
    let since = Instant::now();
    offered(&mut news).await.accept();
    assert_eq!(since.elapsed(), Duration::from_millis(500 + 1000 + 2000));
    assert_eq!(gone(&mut news).await.facts.name, "d");
    offered(&mut news).await.accept();
    assert_eq!(told(&plugins, 1).await, [Ok(())]);
}

#[tokio::test(start_paused = true)]
async fn the_next_follower_is_offered_everything_and_the_last_one_hears_its_end() {
    let plugins = FakePlugins::default();
    plugins.show_driver(&FakeDriver::new("d"));
    let watcher = watcher(&plugins);
    let mut first = watcher.follow(PluginKind::Csi);
    offered(&mut first).await.accept();
    told(&plugins, 1).await;
    let mut second = watcher.follow(PluginKind::Csi);
    assert!(first.next().await.is_none(), "there is one follower");
    offered(&mut second).await.accept();
    assert_eq!(told(&plugins, 2).await.len(), 2);
    // A follower that went is noticed when there is something to tell, and the next one is offered it.
    drop(second);
    plugins.hide_driver("d");
    plugins.show_driver(&FakeDriver::new("d"));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut third = watcher.follow(PluginKind::Csi);
    offered(&mut third).await.accept();
    assert_eq!(told(&plugins, 3).await.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn another_kind_of_plugin_is_refused_where_it_is_not_served() {
    let plugins = FakePlugins::default();
    let kind = PluginKind::Device.word().to_owned();
    plugins.show(SOCKET, PluginFacts { kind, name: "gpu".into(), ..Default::default() });
    let _watcher = watcher(&plugins);
    let words = "RegisterPlugin error -- no handler registered for plugin type: DevicePlugin at socket \
                 /registry/d.sock";
    assert_eq!(told(&plugins, 1).await[0], Err(words.to_owned()));
}

/// A registrar that panics when it first asks the plugin behind a socket.
struct Breaks {
    plugins: FakePlugins,
    at: &'static str,
    has_broken: AtomicBool,
}

impl Registrar for Breaks {
    fn info(&self, socket: &str) -> BoxFuture<'static, Result<PluginFacts, String>> {
        let breaks = socket == self.at && !self.has_broken.swap(true, Ordering::Relaxed);
        assert!(!breaks, "in the registrar");
        self.plugins.info(socket)
    }

    fn notify(&self, socket: &str, status: Result<(), String>) -> BoxFuture<'static, Result<(), String>> {
        self.plugins.notify(socket, status)
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_panic_the_follower_is_offered_everything() {
    let plugins = FakePlugins::default();
    plugins.show_driver(&FakeDriver::new("d"));
    let has_broken = AtomicBool::new(false);
    let registrar = Arc::new(Breaks { plugins: plugins.clone(), at: "/registry/e.sock", has_broken });
    let (sockets, metrics) = (Arc::new(plugins.clone()), PluginMetrics::new().unwrap());
    let watcher = PluginWatcher::start(&Io::current(), sockets, registrar, [PluginKind::Csi], metrics);
    let mut news = watcher.follow(PluginKind::Csi);
    offered(&mut news).await.accept();
    told(&plugins, 1).await;
    plugins.show_driver(&FakeDriver::new("e"));
    // What goes until the work begins anew is told to no follower: the end of the stream says so.
    let end = tokio::time::timeout(Duration::from_secs(600), news.next()).await;
    assert!(end.expect("the end").is_none());
    let mut news = watcher.follow(PluginKind::Csi);
    let mut names = [offered(&mut news).await, offered(&mut news).await].map(|offer| offer.facts.name);
    names.sort();
    assert_eq!(names, ["d", "e"]);
}
