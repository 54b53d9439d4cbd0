//! Messages of the packages `opentelemetry.proto…`: names and numbers as published, of what the kubelet tells.

use prost::Message;

/// What `Export` of the service `opentelemetry.proto.collector.trace.v1.TraceService` is sent.
#[derive(Clone, PartialEq, Message)]
pub struct ExportTraceServiceRequest {
    /// The spans, by what they are of.
    #[prost(message, repeated, tag = "1")]
    pub resource_spans: Vec<ResourceSpans>,
}

/// What `Export` answers.
#[derive(Clone, PartialEq, Message)]
pub struct ExportTraceServiceResponse {
    /// What of the request was not taken; absent if all was.
    #[prost(message, optional, tag = "1")]
    pub partial_success: Option<ExportTracePartialSuccess>,
}

/// What of a request was not taken.
#[derive(Clone, PartialEq, Message)]
pub struct ExportTracePartialSuccess {
    /// How many spans.
    #[prost(int64, tag = "1")]
    pub rejected_spans: i64,
    /// Why, or a warning where all were taken.
    #[prost(string, tag = "2")]
    pub error_message: String,
}

/// Spans of one resource.
#[derive(Clone, PartialEq, Message)]
pub struct ResourceSpans {
    /// What the spans are of.
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
    /// The spans, by what made them.
    #[prost(message, repeated, tag = "2")]
    pub scope_spans: Vec<ScopeSpans>,
}

/// What spans are of.
#[derive(Clone, PartialEq, Message)]
pub struct Resource {
    /// What names it.
    #[prost(message, repeated, tag = "1")]
    pub attributes: Vec<KeyValue>,
}

/// Spans made by one part of a program.
#[derive(Clone, PartialEq, Message)]
pub struct ScopeSpans {
    /// The part of the program.
    #[prost(message, optional, tag = "1")]
    pub scope: Option<InstrumentationScope>,
    /// The spans.
    #[prost(message, repeated, tag = "2")]
    pub spans: Vec<Span>,
}

/// A part of a program that makes spans.
#[derive(Clone, PartialEq, Message)]
pub struct InstrumentationScope {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its version.
    #[prost(string, tag = "2")]
    pub version: String,
}

/// A piece of work, with its beginning and its end.
#[derive(Clone, PartialEq, Message)]
pub struct Span {
    /// The trace that it belongs to, 16 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub trace_id: Vec<u8>,
    /// Its own ID, 8 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub span_id: Vec<u8>,
    /// The span that it is a part of; empty for none.
    #[prost(bytes = "vec", tag = "4")]
    pub parent_span_id: Vec<u8>,
    /// What was done.
    #[prost(string, tag = "5")]
    pub name: String,
    /// 1 internal, 2 server, 3 client, 4 producer, 5 consumer.
    #[prost(int32, tag = "6")]
    pub kind: i32,
    /// Its beginning, nanoseconds since 1970.
    #[prost(fixed64, tag = "7")]
    pub start_time_unix_nano: u64,
    /// Its end, nanoseconds since 1970.
    #[prost(fixed64, tag = "8")]
    pub end_time_unix_nano: u64,
    /// What is told of it.
    #[prost(message, repeated, tag = "9")]
    pub attributes: Vec<KeyValue>,
    /// How it went; absent if nothing is said of that.
    #[prost(message, optional, tag = "15")]
    pub status: Option<Status>,
}

impl Span {
    /// The text of an attribute, if there is one of this key.
    #[must_use]
    pub fn attribute(&self, key: &str) -> Option<&str> {
        let found = self.attributes.iter().find(|attribute| attribute.key == key)?;
        found.value.as_ref()?.string_value.as_deref()
    }
}

/// How a span went.
#[derive(Clone, PartialEq, Message)]
pub struct Status {
    /// What there is to say of it.
    #[prost(string, tag = "2")]
    pub message: String,
    /// 0 unset, 1 well, 2 an error.
    #[prost(int32, tag = "3")]
    pub code: i32,
}

/// An attribute.
#[derive(Clone, PartialEq, Message)]
pub struct KeyValue {
    /// Its name.
    #[prost(string, tag = "1")]
    pub key: String,
    /// Its value.
    #[prost(message, optional, tag = "2")]
    pub value: Option<AnyValue>,
}

impl KeyValue {
    /// An attribute with a text.
    #[must_use]
    pub fn text(key: &str, text: &str) -> Self {
        Self { key: key.to_owned(), value: Some(AnyValue { string_value: Some(text.to_owned()) }) }
    }
}

/// The value of an attribute, of which the kubelet tells texts alone.
#[derive(Clone, PartialEq, Message)]
pub struct AnyValue {
    /// A text.
    #[prost(string, optional, tag = "1")]
    pub string_value: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_encoded_as_published() {
        let span = Span {
            trace_id: vec![0xaa; 16],
            span_id: vec![0xbb; 8],
            parent_span_id: vec![0xcc; 8],
            name: "n".to_owned(),
            kind: 3,
            start_time_unix_nano: 1,
            end_time_unix_nano: 2,
            attributes: vec![KeyValue::text("k", "v")],
            status: Some(Status { message: String::new(), code: 2 }),
        };
        let mut expected = vec![0x0a, 16];
        expected.extend([0xaa; 16]);
        expected.extend([0x12, 8]);
        expected.extend([0xbb; 8]);
        expected.extend([0x22, 8]);
        expected.extend([0xcc; 8]);
        expected.extend([0x2a, 1, b'n', 0x30, 3]);
        expected.extend([0x39, 1, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend([0x41, 2, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend([0x4a, 8, 0x0a, 1, b'k', 0x12, 3, 0x0a, 1, b'v']);
        expected.extend([0x7a, 2, 0x18, 2]);
        assert_eq!(span.encode_to_vec(), expected);

        let scope = InstrumentationScope { name: "s".to_owned(), version: "1".to_owned() };
        let scope_spans = ScopeSpans { scope: Some(scope), spans: vec![Span::default()] };
        assert_eq!(scope_spans.encode_to_vec(), [0x0a, 6, 0x0a, 1, b's', 0x12, 1, b'1', 0x12, 0]);
        let resource = Resource { attributes: vec![KeyValue::text("k", "v")] };
        assert_eq!(resource.encode_to_vec(), [0x0a, 8, 0x0a, 1, b'k', 0x12, 3, 0x0a, 1, b'v']);
        let of = ResourceSpans { resource: Some(Resource::default()), scope_spans: vec![Default::default()] };
        assert_eq!(of.encode_to_vec(), [0x0a, 0, 0x12, 0]);
        let request = ExportTraceServiceRequest { resource_spans: vec![ResourceSpans::default()] };
        assert_eq!(request.encode_to_vec(), [0x0a, 0]);
    }

    #[test]
    fn an_answer_with_more_than_is_used_is_read() {
        let answer = [0x0a, 6, 0x08, 3, 0x12, 2, b'n', b'o', 0x50, 1];
        let read = ExportTraceServiceResponse::decode(&answer[..]).expect("a message");
        let partial = ExportTracePartialSuccess { rejected_spans: 3, error_message: "no".to_owned() };
        assert_eq!(read.partial_success, Some(partial));
    }
}
