//! PURE: turns figures into rows, each beside its goal.

use bench::{Row, Unit};

/// A row of figures of the kubelets.
pub struct Maker<'a, F> {
    pub ours: Option<&'a F>,
    pub go: Option<&'a F>,
}

impl<F> Maker<'_, F> {
    pub fn row(&self, what: impl Into<String>, unit: Unit, of: fn(&F) -> Option<f64>) -> Row {
        Row { ours: self.ours.and_then(of), go: self.go.and_then(of), ..Row::new(what, unit) }
    }
}

pub fn beside(mut row: Row, floor: Option<f64>) -> Row {
    row.floor = floor;
    row
}

pub fn over(row: Row, floor: Option<f64>, words: &str, limit: fn(f64) -> f64) -> Row {
    let mut row = beside(row, floor);
    row.goal = Some((words.to_owned(), floor.map(limit)));
    row
}

pub fn at_most(mut row: Row, limit: f64, words: &str) -> Row {
    row.goal = Some((words.to_owned(), Some(limit)));
    row
}
