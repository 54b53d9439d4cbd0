//! `understudy demo`: the sample pods on a runtime in memory, with a real kubelet between it and the screen.
//!
//! The runtime is the fake of runtime-bridge behind a Unix socket: no container runs, so it needs neither a container
//! runtime nor privileges. All files are in a temporary directory that is removed at the end.

mod configuration;
mod directory;
mod kubelet;
mod manifests;
mod responder;
mod script;

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use bridge_cri::fake::{FakeRuntime, serve_fake};
use jiff::Timestamp;

use crate::cli::DemoArgs;
use crate::client::Server;
use crate::top::{Interrupts, Watch, live, once};
use configuration::{Places, kubelet_configuration, understudy_configuration};
use directory::Directory;
use kubelet::Kubelet;
use responder::Responder;

/// The first line above every table, so that users do not take the demo for a node.
const BANNER: &str = "Demo on the fake runtime: no container runs, their lives are played from a script.";
/// The path of the kubelet's own page.
const PAGE: &str = "/page";
/// The seconds after which `--once` prints: by then the samples have gone through all their states.
const ONCE_SECONDS: u32 = 15;

/// Runs `understudy demo`.
///
/// # Errors
/// There is no kubelet binary or no sample, or the kubelet ends by itself.
pub async fn demo(args: DemoArgs) -> anyhow::Result<()> {
    let binary = kubelet_binary(args.kubelet.as_deref())?;
    let samples = match &args.manifests {
        Some(directory) => manifests::read(directory)?,
        None => manifests::embedded(),
    };
    // From here on, a signal ends the demo in order, so that no kubelet and no directory is left behind.
    let mut interrupts = Interrupts::listen()?;
    let stage = Stage::set(&samples).await?;
    let mut kubelet = Kubelet::start(&binary, &stage.places, args.log.as_deref())?;
    let shown = show(&stage, &mut kubelet, &args, &mut interrupts).await;
    let stopped = kubelet.stop().await;
    let closed = stage.close();
    shown.and(stopped).and(closed)
}

async fn show(
    stage: &Stage,
    kubelet: &mut Kubelet,
    args: &DemoArgs,
    interrupts: &mut Interrupts,
) -> anyhow::Result<()> {
    let seconds = args.seconds.or(args.show.once.then_some(ONCE_SECONDS));
    let deadline = async {
        match seconds {
            Some(seconds) => tokio::time::sleep(Duration::from_secs(seconds.into())).await,
            None => std::future::pending().await,
        }
    };
    let ended = async {
        tokio::select! {
            biased;
            status = kubelet.ended() => Some(status),
            () = deadline => None,
        }
    };
    let banner = format!("{BANNER}\nIn a browser: {}{PAGE}", stage.server);
    let mut failure = None;
    if args.show.once {
        tokio::select! {
            biased;
            () = interrupts.next() => return Ok(()),
            early = ended => failure = early,
        }
        if failure.is_none() {
            return once(&stage.server, Some(&banner)).await;
        }
    } else {
        let mut watch = Watch::new(stage.server.clone(), Some(&banner));
        live(&mut watch, &args.show, interrupts, async { failure = ended.await }).await?;
    }
    match failure {
        Some(status) => {
            bail!("the kubelet ended by itself ({status}); its last words:\n{}", kubelet.last_words())
        }
        None => Ok(()),
    }
}

/// The kubelet's binary: the one given, or the one beside this program.
fn kubelet_binary(named: Option<&Path>) -> anyhow::Result<PathBuf> {
    let binary = match named {
        Some(named) => named.to_owned(),
        None => std::env::current_exe().context("find this program's own file")?.with_file_name("kubelet"),
    };
    if !binary.is_file() {
        bail!(
            "no kubelet at {}: build it with `cargo build -p kubelet`, or name one with --kubelet or KUBELET",
            binary.display()
        );
    }
    Ok(binary)
}

/// The parts that are set up before the kubelet starts.
struct Stage {
    places: Places,
    server: Server,
    _responder: Responder,
    serving: bridge_cri::fake::Serving,
    // Declared last, so that it is dropped after the others.
    directory: Directory,
}

impl Stage {
    async fn set(samples: &[manifests::Sample]) -> anyhow::Result<Self> {
        let directory = Directory::make().context("make a temporary directory")?;
        let ports = free_ports().context("find free ports on 127.0.0.1")?;
        let places = Places::within(directory.path(), ports);
        for made in places.directories() {
            std::fs::create_dir_all(made).with_context(|| format!("make directory {}", made.display()))?;
        }
        let now_ns = i64::try_from(Timestamp::now().as_nanosecond()).context("read the clock")?;
        let runtime = FakeRuntime::new(u64::from(std::process::id()))
            .at_wall_time(now_ns)
            .with_open_registry()
            .without_pids()
            .with_image_directory(places.images.clone())
            .writing_logs();
        let mut responder = Responder::new(runtime.clone());
        let mut pods = Vec::new();
        for sample in samples {
            let mut manifest = sample.manifest()?;
            let prepared = responder.take_over_probes(&mut manifest).await;
            prepared.with_context(|| format!("prepare {}", sample.name))?;
            pods.extend(manifests::pod(&manifest));
            write(&places.manifests.join(&sample.name), &format!("{manifest:#}\n"))?;
        }
        script::script(&runtime, &pods);
        write(&places.kubelet_config, &kubelet_configuration(&places))?;
        write(&places.understudy_config, &understudy_configuration(&places))?;
        let serving = serve_fake(&places.socket, runtime);
        let serving = serving.with_context(|| format!("listen on {}", places.socket.display()))?;
        let server = Server::local(places.read_only_port);
        Ok(Self { places, server, _responder: responder, serving, directory })
    }

    fn close(self) -> anyhow::Result<()> {
        drop(self.serving);
        self.directory.close()
    }
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

/// Two free ports: both are held until both are known, so that they differ.
fn free_ports() -> std::io::Result<[u16; 2]> {
    let held = [TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?, TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?];
    Ok([held[0].local_addr()?.port(), held[1].local_addr()?.port()])
}
