//! PURE: rows in columns that fit a width.

use super::text::{Align, padded, width};

/// The space between two columns.
const GAP: usize = 2;

/// A column, and how it behaves when there is little room.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// The heading.
    pub title: &'static str,
    /// The alignment of its cells.
    pub align: Align,
    /// The least width while the column is shown.
    pub width_min: usize,
    /// The greatest width.
    pub width_max: usize,
    /// The column with the lowest worth is left out first when not even the least widths fit. The first column stays.
    pub worth: u8,
}

/// The titles' line and one line per row, each at most `room` columns wide.
pub fn lay_out(columns: &[Column], rows: &[Vec<String>], room: usize) -> (String, Vec<String>) {
    let widths = widths(columns, rows, room);
    let line = |cells: &mut dyn Iterator<Item = (usize, &str)>| {
        let mut line = String::new();
        for (index, text) in cells {
            let Some(width) = widths[index] else { continue };
            if !line.is_empty() {
                line.push_str(&" ".repeat(GAP));
            }
            line.push_str(&padded(text, width, columns[index].align));
        }
        line.truncate(line.trim_end().len());
        line
    };
    let titles = line(&mut columns.iter().map(|column| column.title).enumerate());
    let lines = rows.iter().map(|row| line(&mut row.iter().map(String::as_str).enumerate())).collect();
    (titles, lines)
}

/// The width of every column; `None` for those that are left out.
fn widths(columns: &[Column], rows: &[Vec<String>], room: usize) -> Vec<Option<usize>> {
    let natural = |(index, column): (usize, &Column)| {
        let cells = rows.iter().filter_map(|row| row.get(index)).map(|cell| width(cell));
        let widest = cells.chain([width(column.title)]).max().unwrap_or(0);
        Some(widest.min(column.width_max))
    };
    let mut widths: Vec<Option<usize>> = columns.iter().enumerate().map(natural).collect();
    let least = |index: usize, width: usize| width.min(columns[index].width_min);
    let total = |widths: &[Option<usize>], each: &dyn Fn(usize, usize) -> usize| {
        let shown = widths.iter().enumerate().filter_map(|(index, width)| Some(each(index, (*width)?) + GAP));
        shown.sum::<usize>().saturating_sub(GAP)
    };
    while total(&widths, &least) > room {
        let there = (1..columns.len()).filter(|index| widths[*index].is_some());
        let Some(least_worth) = there.min_by_key(|index| columns[*index].worth) else { break };
        widths[least_worth] = None;
    }
    // The widest column shrinks first; among equals, the rightmost.
    loop {
        let excess = total(&widths, &|_, width| width).saturating_sub(room);
        if excess == 0 {
            return widths;
        }
        let giving = |(index, width): (usize, &Option<usize>)| {
            let width = (*width)?;
            (width > least(index, width)).then_some((width, index))
        };
        let Some((_, index)) = widths.iter().enumerate().filter_map(giving).max() else {
            // Only the first column is left, and it is wider than the screen.
            if let Some(first) = &mut widths[0] {
                *first = (*first).min(room);
            }
            return widths;
        };
        if let Some(width) = &mut widths[index] {
            *width -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn column(title: &'static str, width_min: usize, worth: u8) -> Column {
        Column { title, align: Align::Left, width_min, width_max: 40, worth }
    }

    fn shown(room: usize) -> Vec<String> {
        let columns = [
            column("NAME", 6, 9),
            column("STATE", 5, 5),
            Column { align: Align::Right, ..column("N", 2, 1) },
        ];
        let rows = [vec!["long-name-of-a-pod".to_owned(), "Running".to_owned(), "12".to_owned()]];
        let (titles, mut lines) = lay_out(&columns, &rows, room);
        lines.insert(0, titles);
        lines
    }

    #[test]
    fn wide_columns_give_way_then_worthless_ones_go() {
        assert_eq!(shown(80), ["NAME                STATE     N", "long-name-of-a-pod  Running  12"]);
        assert_eq!(shown(25), ["NAME          STATE     N", "long-name-o…  Running  12"]);
        assert_eq!(shown(17), ["NAME    STATE   N", "long-…  Runn…  12"]);
        assert_eq!(shown(14), ["NAME    STATE", "long-…  Runni…"]);
        assert_eq!(shown(6), ["NAME", "long-…"]);
        assert_eq!(shown(3), ["NA…", "lo…"]);
    }
}
