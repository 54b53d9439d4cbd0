//! As much of HTTP/1.0 as registries need: one request, one connection.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// How long one request may take to connect, and each read of its answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// The first line and the header of a request or an answer.
#[derive(Clone, Debug, Default)]
pub struct Head {
    pub first: String,
    pub fields: Vec<(String, String)>,
}

impl Head {
    pub fn read(from: &mut impl BufRead) -> Result<Self, String> {
        let mut lines = from.lines();
        let mut line = || lines.next().ok_or("the connection was closed")?.map_err(|error| error.to_string());
        let mut head = Self { first: line()?, fields: Vec::new() };
        loop {
            match line()? {
                end if end.is_empty() => return Ok(head),
                field => {
                    let (name, value) = field.split_once(':').ok_or_else(|| format!("no header: {field}"))?;
                    head.fields.push((name.to_lowercase(), value.trim().to_owned()));
                }
            }
        }
    }

    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    pub fn write(&self, to: &mut impl Write) -> std::io::Result<()> {
        let fields: String = self.fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        to.write_all(format!("{}\r\n{fields}\r\n", self.first).as_bytes())
    }
}

/// Begins a request to a port of 127.0.0.1; the answer can be read from the stream.
pub fn begin(
    port: u16,
    method: &str,
    target: &str,
    fields: &[(&str, String)],
    body: &[u8],
) -> std::io::Result<BufReader<TcpStream>> {
    let mut stream = TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut head = Head { first: format!("{method} {target} HTTP/1.0"), fields: Vec::new() };
    head.fields.push(("Host".to_owned(), format!("127.0.0.1:{port}")));
    head.fields.push(("Content-Length".to_owned(), body.len().to_string()));
    head.fields.extend(fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    head.write(&mut stream)?;
    stream.write_all(body)?;
    Ok(BufReader::new(stream))
}

/// Makes a request: the answer's status, header and body.
pub fn ask(
    port: u16,
    method: &str,
    target: &str,
    fields: &[(&str, String)],
    body: &[u8],
) -> Result<(u16, Head, Vec<u8>), String> {
    let failed = |error: String| format!("{method} {target}: {error}");
    let mut answer = begin(port, method, target, fields, body).map_err(|error| failed(error.to_string()))?;
    let head = Head::read(&mut answer).map_err(failed)?;
    let status = head.first.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| failed(format!("no status: {}", head.first)))?;
    let mut body = Vec::new();
    answer.read_to_end(&mut body).map_err(|error| failed(error.to_string()))?;
    Ok((status, head, body))
}
