use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt;
use futures::future::BoxFuture;

use super::{PacketTables, TablesError, Told};

/// Chains that every table of a kernel has, as far as they matter here.
const BUILT_IN: [&str; 3] = ["INPUT", "OUTPUT", "POSTROUTING"];

/// Tables in memory. Clones share them.
#[derive(Debug, Clone)]
pub struct FakeTables {
    family: &'static str,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    has_no_program: bool,
    /// The exit status with which every command fails.
    broken: Option<Option<i32>>,
    /// `table chain`
    chains: BTreeSet<String>,
    /// `table chain rule`, the first one first.
    rules: Vec<String>,
    commands: u64,
}

impl FakeTables {
    /// Tables without chains of others.
    pub fn new(family: &'static str) -> Self {
        Self { family, state: Arc::default() }
    }

    /// Takes the program away.
    pub fn remove_program(&self) {
        self.locked().has_no_program = true;
    }

    /// Lets every command fail with this exit status, with `None` as one that does not end, until it is called with `None`.
    pub fn set_broken(&self, status: Option<Option<i32>>) {
        self.locked().broken = status;
    }

    /// Removes all chains and rules, as a firewall does that begins anew.
    pub fn flush(&self) {
        let mut state = self.locked();
        state.chains.clear();
        state.rules.clear();
    }

    /// The chains, as `table chain`, sorted.
    pub fn chains(&self) -> Vec<String> {
        self.locked().chains.iter().cloned().collect()
    }

    /// The rules, as `table chain rule`.
    pub fn rules(&self) -> Vec<String> {
        self.locked().rules.clone()
    }

    /// How many commands there were.
    pub fn commands(&self) -> u64 {
        self.locked().commands
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The exit status: 0, 1 for what cannot be done, 2 for what is no command.
    fn carry_out(&mut self, arguments: &[&str]) -> i32 {
        let [command, chain, "-t", table, rule @ ..] = arguments else { return 2 };
        let place = format!("{table} {chain}");
        let is_there = BUILT_IN.contains(chain) || self.chains.contains(&place);
        let rule = [&[place.as_str()][..], rule].concat().join(" ");
        let done = match *command {
            "-N" => !is_there && self.chains.insert(place),
            "-S" => is_there,
            "-C" => self.rules.contains(&rule),
            "-I" if is_there => {
                self.rules.insert(0, rule);
                true
            }
            "-A" if is_there => {
                self.rules.push(rule);
                true
            }
            "-I" | "-A" => false,
            _ => return 2,
        };
        i32::from(!done)
    }
}

impl PacketTables for FakeTables {
    fn family(&self) -> &'static str {
        self.family
    }

    fn has_program(&self) -> BoxFuture<'static, bool> {
        let is_there = !self.locked().has_no_program;
        std::future::ready(is_there).boxed()
    }

    fn run(&self, arguments: &[&str]) -> Told {
        let mut state = self.locked();
        state.commands += 1;
        let status = match state.broken {
            Some(status) => status,
            None => Some(state.carry_out(arguments)),
        };
        let told = match status {
            Some(0) => Ok(()),
            status => {
                let command = arguments.join(" ");
                Err(TablesError { command, why: format!("exit status {status:?}"), status })
            }
        };
        std::future::ready(told).boxed()
    }
}
