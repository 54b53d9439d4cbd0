//! Makes the chains and rules, and makes them again when they have gone: the canary in three tables tells of a firewall that
//! has removed everything.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tokio::time::Instant;

use super::{PacketTables, TablesError};

/// Upstream's period of looks at the canary, and of attempts after a failure.
const PERIOD: Duration = Duration::from_secs(60);
/// How long the canaries of the other tables may take to go after the first (upstream's times).
const FLUSHED_WITHIN: Duration = Duration::from_secs(5);
const FLUSH_POLL: Duration = Duration::from_millis(100);

/// Its existence tells other programs which of the two kinds of iptables the machine uses.
const HINT: &str = "KUBE-IPTABLES-HINT";
const CANARY: &str = "KUBE-KUBELET-CANARY";
/// The tables with a canary; the first one is looked at.
const CANARY_TABLES: [&str; 3] = ["mangle", "nat", "filter"];
/// Has the rule against packets that claim to come from another machine's loopback addresses.
const FIREWALL: &str = "KUBE-FIREWALL";
/// That rule, the same that kube-proxy makes: neither makes it where it is already.
const NO_FOREIGN_LOOPBACK: [&str; 16] = [
    "-m",
    "comment",
    "--comment",
    "block incoming localnet connections",
    "--dst",
    "127.0.0.0/8",
    "!",
    "--src",
    "127.0.0.0/8",
    "-m",
    "conntrack",
    "!",
    "--ctstate",
    "RELATED,ESTABLISHED,DNAT",
    "-j",
    "DROP",
];

/// Keeps the chains in these tables for as long as it is polled. It ends if this machine has no iptables of any family.
pub async fn keep(families: Vec<Arc<dyn PacketTables>>) {
    let mut all: Vec<Chains> = families.into_iter().map(Chains::new).collect();
    loop {
        let kept = join_all(all.iter_mut().map(Chains::look)).await;
        if !kept.contains(&true) {
            tracing::info!("No iptables support on this system; not creating the KUBE-IPTABLES-HINT chain");
            return;
        }
        tokio::time::sleep(PERIOD).await;
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Whether the machine has these tables is not known yet.
    Unknown,
    /// The machine does not have them.
    Absent,
    /// Chains and rules are to be made.
    Wanted,
    /// Chains and rules are there, canaries are to be made.
    Bare,
    /// Everything is there, and the canary is looked at.
    Watched,
}

/// The chains in the tables of one family.
#[derive(Debug)]
struct Chains {
    tables: Arc<dyn PacketTables>,
    stage: Stage,
    /// The failure that was logged last.
    said: String,
}

impl Chains {
    fn new(tables: Arc<dyn PacketTables>) -> Self {
        Self { tables, stage: Stage::Unknown, said: String::new() }
    }

    /// One look, with all that follows from it. Returns whether the machine has these tables, as far as is known.
    async fn look(&mut self) -> bool {
        match self.step().await {
            Ok(()) => self.said.clear(),
            Err(error) => {
                let (text, protocol) = (error.to_string(), self.tables.family());
                if text != self.said {
                    tracing::warn!(
                        err = text,
                        protocol,
                        "Failed to initialize iptables rules; some functionality may be missing."
                    );
                }
                self.said = text;
            }
        }
        self.stage != Stage::Absent
    }

    async fn step(&mut self) -> Result<(), TablesError> {
        if self.stage == Stage::Unknown {
            self.stage = self.is_present().await?;
        }
        if self.stage == Stage::Watched {
            if self.has_canary(CANARY_TABLES[0]).await? {
                return Ok(());
            }
            tracing::info!(protocol = self.tables.family(), "IPTables canary deleted");
            self.flushed().await;
            self.stage = Stage::Wanted;
        }
        if self.stage == Stage::Wanted {
            self.make_rules().await?;
            tracing::info!(protocol = self.tables.family(), "Initialized iptables rules.");
            self.stage = Stage::Bare;
        }
        if self.stage == Stage::Bare {
            for table in CANARY_TABLES {
                self.ensure_chain(table, CANARY).await?;
            }
            self.stage = Stage::Watched;
        }
        Ok(())
    }

    /// Whether the machine has these tables: the program, and the kernel's part of it. The answer is taken for good, as upstream
    /// does, unless another program keeps it from being had.
    async fn is_present(&self) -> Result<Stage, TablesError> {
        if !self.tables.has_program().await {
            return Ok(Stage::Absent);
        }
        match self.tables.run(&["-S", "POSTROUTING", "-t", "nat"]).await {
            Ok(()) => Ok(Stage::Wanted),
            Err(error) if error.is_undecided() => Err(error),
            Err(error) => {
                tracing::info!(%error, protocol = self.tables.family(), "iptables cannot be used");
                Ok(Stage::Absent)
            }
        }
    }

    async fn make_rules(&self) -> Result<(), TablesError> {
        self.ensure_chain("mangle", HINT).await?;
        // Loopback addresses of IPv6 cannot come from elsewhere.
        if self.tables.family() == "IPv6" {
            return Ok(());
        }
        self.ensure_chain("filter", FIREWALL).await?;
        for chain in ["OUTPUT", "INPUT"] {
            self.ensure_rule("-I", chain, &["-j", FIREWALL]).await?;
        }
        self.ensure_rule("-A", FIREWALL, &NO_FOREIGN_LOOPBACK).await
    }

    async fn ensure_chain(&self, table: &str, chain: &str) -> Result<(), TablesError> {
        match self.tables.run(&["-N", chain, "-t", table]).await {
            Err(error) if error.is_refusal() => Ok(()),
            told => told,
        }
    }

    /// A rule of the table `filter`, at its chain's beginning (`-I`) or end (`-A`) if it is not there yet.
    async fn ensure_rule(&self, place: &str, chain: &str, rule: &[&str]) -> Result<(), TablesError> {
        let [check, make] = ["-C", place].map(|word| [&[word, chain, "-t", "filter"][..], rule].concat());
        match self.tables.run(&check).await {
            Err(error) if error.is_refusal() => self.tables.run(&make).await,
            told => told,
        }
    }

    async fn has_canary(&self, table: &str) -> Result<bool, TablesError> {
        match self.tables.run(&["-S", CANARY, "-t", table]).await {
            Ok(()) => Ok(true),
            Err(error) if error.is_undecided() => Err(error),
            Err(_) => Ok(false),
        }
    }

    /// Waits until the other canaries have gone, too: what is made while a firewall still removes would go with the rest.
    async fn flushed(&self) {
        let until = Instant::now() + FLUSHED_WITHIN;
        for table in &CANARY_TABLES[1..] {
            while !matches!(self.has_canary(table).await, Ok(false)) {
                if Instant::now() >= until {
                    tracing::info!(protocol = self.tables.family(), "Inconsistent iptables state detected");
                    return;
                }
                tokio::time::sleep(FLUSH_POLL).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use tokio::runtime::Handle;

    use super::super::{FakeTables, ProgramTables};
    use super::*;

    const ALL: [&str; 5] = [
        "filter KUBE-FIREWALL",
        "filter KUBE-KUBELET-CANARY",
        "mangle KUBE-IPTABLES-HINT",
        "mangle KUBE-KUBELET-CANARY",
        "nat KUBE-KUBELET-CANARY",
    ];
    const RULES: [&str; 3] = [
        "filter INPUT -j KUBE-FIREWALL",
        "filter OUTPUT -j KUBE-FIREWALL",
        "filter KUBE-FIREWALL -m comment --comment block incoming localnet connections --dst 127.0.0.0/8 ! --src \
         127.0.0.0/8 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP",
    ];

    fn family(tables: &FakeTables) -> Chains {
        Chains::new(Arc::new(tables.clone()))
    }

    #[tokio::test(start_paused = true)]
    async fn chains_and_rules_are_made_once_and_again_when_they_have_gone() {
        let tables = FakeTables::new("IPv4");
        let mut chains = family(&tables);
        for _ in 0..2 {
            assert!(chains.look().await);
            assert_eq!(tables.chains(), ALL);
            assert_eq!(tables.rules(), RULES);
            let commands = tables.commands();
            assert!(chains.look().await);
            assert_eq!(tables.commands(), commands + 1, "only the canary is looked at");
            tables.flush();
        }
        // Another kubelet's or kube-proxy's chains are used as they are.
        assert!(chains.look().await);
        assert!(family(&tables).look().await);
        assert_eq!(tables.rules(), RULES);
    }

    #[tokio::test(start_paused = true)]
    async fn ipv6_has_no_rules() {
        let tables = FakeTables::new("IPv6");
        assert!(family(&tables).look().await);
        assert_eq!(tables.chains(), ALL[1..]);
        assert_eq!(tables.rules(), Vec::<String>::new());
    }

    #[tokio::test(start_paused = true)]
    async fn a_machine_without_iptables_is_asked_once() {
        let (missing, unusable) = (FakeTables::new("IPv4"), FakeTables::new("IPv6"));
        missing.remove_program();
        unusable.set_broken(Some(Some(3)));
        keep(vec![Arc::new(missing.clone()), Arc::new(unusable.clone())]).await;
        assert_eq!((missing.commands(), unusable.commands()), (0, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_no_deletion_and_is_tried_again() {
        let tables = FakeTables::new("IPv4");
        let mut chains = family(&tables);
        for undecided in [Some(4), None] {
            tables.set_broken(Some(undecided));
            assert!(chains.look().await);
            assert_eq!((chains.stage, chains.said.is_empty()), (Stage::Unknown, false));
        }
        tables.set_broken(None);
        assert!(chains.look().await);
        assert_eq!((chains.stage, chains.said.as_str()), (Stage::Watched, ""));
        tables.set_broken(Some(Some(4)));
        assert!(chains.look().await);
        assert_eq!(chains.stage, Stage::Watched);
        tables.set_broken(Some(Some(3)));
        assert!(chains.look().await);
        assert_eq!(chains.stage, Stage::Wanted);
        tables.set_broken(None);
        assert!(chains.look().await);
        assert_eq!((chains.stage, tables.chains().len()), (Stage::Watched, ALL.len()));
    }

    #[tokio::test(start_paused = true)]
    async fn they_are_looked_at_every_minute() {
        let tables = FakeTables::new("IPv4");
        let kept = tokio::spawn(keep(vec![Arc::new(tables.clone())]));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(tables.chains(), ALL);
        tables.flush();
        tokio::time::sleep(PERIOD).await;
        assert_eq!(tables.chains(), ALL);
        kept.abort();
    }

    /// A process in a network namespace of its own, which ends with this.
    struct Namespace(Child);

    impl Namespace {
        /// `None` if this process may not make one.
        fn new() -> Option<Self> {
            let child = Command::new("unshare").args(["--net", "sleep", "600"]).spawn().ok()?;
            let mut this = Self(child);
            let of = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/net")).ok();
            let own = of("self")?;
            let pid = this.0.id().to_string();
            while this.0.try_wait().ok()?.is_none() {
                if of(&pid).is_some_and(|net| net != own) {
                    return Some(this);
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            None
        }
    }

    impl Drop for Namespace {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[tokio::test]
    async fn the_machines_own_programs_take_the_commands() {
        let Some(namespace) = Namespace::new() else {
            eprintln!("skipped: this process cannot make a network namespace");
            return;
        };
        for tables in ProgramTables::both(&Handle::current()) {
            let tables = Arc::new(tables.within(namespace.0.id()));
            let mut chains = Chains::new(tables.clone());
            if !chains.look().await || chains.stage == Stage::Unknown {
                eprintln!(
                    "skipped: no {} tables in a namespace of this machine: {}",
                    tables.family(),
                    chains.said
                );
                continue;
            }
            assert_eq!((chains.stage, chains.said.as_str()), (Stage::Watched, ""));
            let there =
                async |table: &str, chain: &str| tables.run(&["-S", chain, "-t", table]).await.is_ok();
            assert!(there("mangle", HINT).await && there("filter", CANARY).await);
            assert_eq!(there("filter", FIREWALL).await, tables.family() == "IPv4");
            chains.make_rules().await.unwrap();
            for (table, chain) in [("mangle", HINT), ("mangle", CANARY), ("nat", CANARY), ("filter", CANARY)]
            {
                tables.run(&["-X", chain, "-t", table]).await.unwrap();
            }
            assert!(chains.look().await);
            assert_eq!(chains.stage, Stage::Watched, "{}", chains.said);
            assert!(there("mangle", HINT).await && there("nat", CANARY).await);
        }
    }
}
