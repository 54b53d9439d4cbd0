//! PURE: the table of figures, each beside its floor and its goal.

use serde::Serialize;

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Unit {
    /// Seconds of wall time or of CPU.
    Seconds,
    /// Share of one core.
    Cores,
    /// Mebibytes of memory.
    Mebibytes,
    /// Megabytes of disk.
    Megabytes,
    /// Times per second.
    PerSecond,
    /// A number of things.
    Count,
    /// A number of things for each one of another kind.
    Ratio,
}

impl Unit {
    fn text(self, value: f64) -> String {
        match self {
            Self::Seconds if value < 0.1 => format!("{:.1} ms", value * 1000.0),
            Self::Seconds if value < 2.0 => format!("{:.0} ms", value * 1000.0),
            Self::Seconds => format!("{value:.2} s"),
            Self::Cores => format!("{value:.4} core"),
            Self::Mebibytes => format!("{value:.1} MiB"),
            Self::Megabytes => format!("{value:.1} MB"),
            Self::PerSecond => format!("{value:.2} /s"),
            Self::Count => format!("{value:.0}"),
            Self::Ratio => format!("{value:.2}"),
        }
    }
}

/// One figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// What was measured, for people.
    pub what: String,
    /// The unit of all its values.
    pub unit: Unit,
    /// This project's value; `None` if it was not measured.
    pub ours: Option<f64>,
    /// The value without a kubelet.
    pub floor: Option<f64>,
    /// The value of the Go kubelet.
    pub go: Option<f64>,
    /// The goal in words, and the largest value of `ours` that meets it; `None` if that depends on a missing floor.
    pub goal: Option<(String, Option<f64>)>,
}

impl Row {
    /// A row without values.
    #[must_use]
    pub fn new(what: impl Into<String>, unit: Unit) -> Self {
        Self { what: what.into(), unit, ours: None, floor: None, go: None, goal: None }
    }

    /// `ours` over the floor.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        let floor = self.floor.filter(|floor| *floor > 0.0)?;
        Some(self.ours? / floor)
    }

    /// Whether the goal is met; `None` without a goal or a value.
    #[must_use]
    pub fn met(&self) -> Option<bool> {
        let limit = self.goal.as_ref()?.1?;
        Some(self.ours? <= limit)
    }

    fn cells(&self) -> [String; 7] {
        let value = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| self.unit.text(value));
        [
            self.what.clone(),
            value(self.ours),
            value(self.floor),
            self.ratio().map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")),
            value(self.go),
            self.goal.as_ref().map_or_else(|| "-".to_owned(), |(words, _)| words.clone()),
            match self.met() {
                Some(true) => "met".to_owned(),
                Some(false) => "MISSED".to_owned(),
                None => String::new(),
            },
        ]
    }
}

/// The rows as text, in columns; the Go kubelet's column only where it was measured.
#[must_use]
pub fn table(rows: &[Row]) -> String {
    let heads = ["what", "ours", "floor", "ratio", "Go kubelet", "goal", ""].map(str::to_owned);
    let lines: Vec<[String; 7]> = std::iter::once(heads).chain(rows.iter().map(Row::cells)).collect();
    let has_go = rows.iter().any(|row| row.go.is_some());
    let columns: Vec<usize> = (0..7).filter(|column| *column != 4 || has_go).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = columns.iter().map(|column| width(*column)).collect();
    let mut text = String::new();
    for line in &lines {
        let cells: Vec<String> = columns
            .iter()
            .zip(&widths)
            .map(|(column, width)| {
                let cell = &line[*column];
                if matches!(column, 1..=4) { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
            })
            .collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ours: f64, floor: f64, limit: f64) -> Row {
        Row {
            ours: Some(ours),
            floor: Some(floor),
            goal: Some(("at most".to_owned(), Some(limit))),
            ..Row::new("one pod", Unit::Seconds)
        }
    }

    #[test]
    fn a_row_is_judged_by_its_limit() {
        assert_eq!(row(0.3, 0.1, 0.2).met(), Some(false));
        assert_eq!(row(0.2, 0.1, 0.2).met(), Some(true));
        assert_eq!(Row { ours: None, ..row(0.2, 0.1, 0.2) }.met(), None);
        assert_eq!(row(0.3, 0.0, 1.0).ratio(), None);
    }

    #[test]
    fn columns_line_up() {
        let mut rows = vec![row(0.3, 0.15, 0.2), row(12.0, 6.0, 20.0)];
        let expected = "\
what        ours   floor  ratio  goal
one pod   300 ms  150 ms   2.00  at most  MISSED
one pod  12.00 s  6.00 s   2.00  at most  met
";
        assert_eq!(table(&rows), expected);
        rows[0].go = Some(0.05);
        assert!(table(&rows).contains("Go kubelet") && table(&rows).contains("50.0 ms"));
    }
}
