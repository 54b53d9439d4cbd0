//! What tests order and ask of the actors, in builds with the feature `faults`.

use std::collections::BTreeMap;

use messages::supervision::Fault;

use super::{NoSuchActor, Tree};
use crate::cell::Cell;
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
        self.most_often(Cell::begun)
    }

    /// The same of effects with a deadline of at most ten minutes, whether they have ended or not.
    pub fn effects_begun(&self) -> BTreeMap<(&'static str, &'static str), u32> {
        self.most_often(|cell| cell.hangs.begun())
    }

    fn most_often(
        &self,
        counts: impl Fn(&Cell) -> BTreeMap<&'static str, u32>,
    ) -> BTreeMap<(&'static str, &'static str), u32> {
        let mut all = BTreeMap::new();
        for registered in self.seats().values() {
            for (what, count) in counts(&registered.cell) {
                let most: &mut u32 = all.entry((registered.cell.kind, what)).or_default();
                *most = count.max(*most);
            }
        }
        all
    }
}
