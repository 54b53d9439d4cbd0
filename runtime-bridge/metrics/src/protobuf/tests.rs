use super::*;
use crate::tests::families;

#[test]
fn messages_are_read_back_with_every_value() {
    let bytes = page(families());
    let mut rest = bytes.as_slice();
    let mut read = Vec::new();
    while !rest.is_empty() {
        read.push(MetricFamily::decode_length_delimited(&mut rest).unwrap());
    }
    let named: Vec<_> = read.iter().map(|it| (it.name.as_deref().unwrap(), it.r#type.unwrap())).collect();
    assert_eq!(named, [("a_seconds", 4), ("evictions", 0), ("pods", 1), ("starts_total", 0)]);
    let histogram = read[0].metric[0].histogram.as_ref().unwrap();
    assert_eq!((histogram.sample_count, histogram.sample_sum), (Some(2), Some(3.25)));
    let buckets: Vec<_> = histogram.bucket.iter().map(|it| (it.upper_bound, it.cumulative_count)).collect();
    assert_eq!(buckets, [(Some(1.0), Some(1)), (Some(2_592_000.0), Some(2))]);
    assert_eq!(read[1].metric[0].counter.unwrap().value, Some(0.0), "a zero is told");
    assert_eq!(read[2].metric[0].timestamp_ms, Some(1_795_407_921_050));
    assert_eq!(read[2].metric[0].label[0].value.as_deref(), Some("a\"b\\c\nd"));
    // The first field of a family is its name: field 1, of the wire's type 2, behind the length of the family, one byte here.
    assert_eq!(&bytes[1..3], [0x0a, 9]);
}
