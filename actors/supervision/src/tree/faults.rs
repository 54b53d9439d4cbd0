//! What tests order and ask of the actors, in builds with the feature `faults`.

use std::collections::BTreeMap;

use messages::supervision::Fault;

use super::{NoSuchActor, Tree};
use crate::orders::Order;

impl Tree {
    /// Orders a fault.
    pub fn inject(&self, actor: &str, fault: Fault) -> Result<(), NoSuchActor> {
        self.find(actor)?.remote.order(Order::Fault(fault));
        Ok(())
    }

    /// How often each kind of actor has begun each piece of work: a message, an effect's result, a timer or a stream's item. Of
    /// children the one that did it most often counts.
    pub fn begun(&self) -> BTreeMap<(&'static str, &'static str), u32> {
        let mut all = BTreeMap::new();
        for registered in self.seats().values() {
            for (what, count) in registered.cell.begun() {
                let most: &mut u32 = all.entry((registered.cell.kind, what)).or_default();
                *most = count.max(*most);
            }
        }
        all
    }
}
