//! The connection of a probe.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpSocket, TcpStream};

/// The linger time that upstream sets (row 7.6).
pub(super) const LINGER: Duration = Duration::from_secs(1);

/// A TCP connection with SO_LINGER. Closing such a socket blocks its thread and changes nothing for the peer, since
/// Linux sends the remaining bytes in any case. So the option is reset before the socket is closed.
#[derive(Debug)]
pub(super) struct Socket {
    stream: TcpStream,
}

impl Socket {
    /// Connects; dropping the future gives the attempt up.
    pub(super) async fn connect(address: SocketAddr) -> io::Result<Self> {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        rustix::net::sockopt::set_socket_linger(&socket, Some(LINGER))?;
        let stream = socket.connect(address).await?;
        // Go sets this option, too.
        stream.set_nodelay(true)?;
        Ok(Self { stream })
    }

    /// `local->peer`, as long as both addresses are known.
    pub(super) fn between(&self) -> Option<String> {
        Some(format!("{}->{}", self.stream.local_addr().ok()?, self.stream.peer_addr().ok()?))
    }

    fn stream(self: Pin<&mut Self>) -> Pin<&mut TcpStream> {
        Pin::new(&mut self.get_mut().stream)
    }

    #[cfg(test)]
    pub(super) fn linger(&self) -> Option<Duration> {
        rustix::net::sockopt::socket_linger(&self.stream).expect("an open socket has options")
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // An open socket accepts the option; if it does not, closing blocks for one second at most.
        let _ = rustix::net::sockopt::set_socket_linger(&self.stream, None);
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_read(cx, buf)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.stream().poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream().poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }
}
