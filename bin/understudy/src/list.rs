//! PURE: the table of `understudy pods`: kubectl's columns.

use pod_why::rows::Row;

use crate::view::table::{Column, lay_out};
use crate::view::text::{Align, span};

/// The width of a table that is not shown on a terminal: no cell of it is cut.
const WIDTH_PLAIN: usize = 4096;

const fn column(title: &'static str, width_min: usize, worth: u8) -> Column {
    Column { title, align: Align::Left, width_min, width_max: 253, worth }
}

/// The titles' line and a line for each row, cut to this width.
pub fn table(rows: &[Row], wide: bool, width: Option<usize>) -> Vec<String> {
    let mut columns = vec![
        column("NAMESPACE", 9, 5),
        column("NAME", 16, 9),
        column("READY", 5, 7),
        column("STATUS", 10, 8),
        column("RESTARTS", 8, 6),
        column("AGE", 4, 4),
    ];
    if wide {
        columns.extend([column("IP", 10, 3), column("UID", 36, 2)]);
    }
    let cells = |row: &Row| {
        let ago = row.restarted_seconds.map(|seconds| format!(" ({} ago)", span(seconds)));
        let mut cells = vec![
            row.namespace.clone(),
            row.name.clone(),
            format!("{}/{}", row.ready_containers, row.containers),
            row.status.clone(),
            format!("{}{}", row.restarts, ago.unwrap_or_default()),
            row.age_seconds.map_or_else(|| "<unknown>".to_owned(), span),
        ];
        if wide {
            let ip = if row.ip.is_empty() { "<none>".to_owned() } else { row.ip.clone() };
            cells.extend([ip, row.uid.clone()]);
        }
        cells
    };
    let cells: Vec<Vec<String>> = rows.iter().map(cells).collect();
    let (titles, lines) = lay_out(&columns, &cells, width.unwrap_or(WIDTH_PLAIN));
    std::iter::once(titles).chain(lines).collect()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use k8s_openapi::api::core::v1::Pod;
    use pod_why::rows::rows;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_table_has_kubectls_columns() {
        let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        let ended = json!({ "exitCode": 1, "finishedAt": "2026-01-01T11:59:30Z" });
        let crash = json!({
            "name": "a", "ready": false, "restartCount": 3, "image": "", "imageID": "",
            "state": { "waiting": { "reason": "CrashLoopBackOff" } }, "lastState": { "terminated": ended },
        });
        let metadata = json!({
            "namespace": "default", "name": "web", "uid": "u-1", "creationTimestamp": "2026-01-01T11:55:00Z",
        });
        let status = json!({ "phase": "Running", "containerStatuses": [crash], "podIP": "10.0.0.1" });
        let spec = json!({ "containers": [{ "name": "a" }] });
        let pod = json!({ "metadata": metadata, "spec": spec, "status": status });
        let pods: Vec<Pod> = vec![serde_json::from_value(pod).unwrap()];
        let listed = rows(&pods, None, now);
        assert_eq!(
            table(&listed, false, None),
            [
                "NAMESPACE  NAME  READY  STATUS            RESTARTS     AGE",
                "default    web   0/1    CrashLoopBackOff  3 (30s ago)  5m",
            ]
        );
        let wide = table(&listed, true, None);
        assert!(
            wide[0].ends_with("AGE  IP        UID") && wide[1].ends_with("5m   10.0.0.1  u-1"),
            "{wide:#?}"
        );
        assert!(rows(&pods, Some("other"), now).is_empty());
        let narrow = table(&listed, true, Some(40));
        assert!(narrow.iter().all(|line| crate::view::text::width(line) <= 40), "{narrow:#?}");
    }
}
