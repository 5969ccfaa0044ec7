//! Queries to servers, by UDP, and by TCP if an answer is too large.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use super::message::{Answer, MAX_RECORDS, Question, RecordType, Records};
use crate::base::crypto::fill_random;

/// DNS servers, and the rules for queries to them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Servers {
    pub(crate) addresses: Vec<SocketAddr>,
    /// Domains that are appended to a name.
    pub(crate) search: Vec<String>,
    /// Minimum number of dots in a name that is tried first as it is.
    pub(crate) min_dots: usize,
    /// Maximum time for one answer.
    pub(crate) timeout: Duration,
    /// Number of queries to each server.
    pub(crate) attempts: u32,
    pub(crate) uses_tcp: bool,
}

/// Size of the buffer for an answer in a datagram.
const MAX_DATAGRAM_BYTES: usize = 4_096;

/// Kind of the error if a server has answered, but not with records.
const FAILED: io::ErrorKind = io::ErrorKind::Other;

/// Maximum wait for the records of one type after the records of the other type. RFC 8305 §3
/// recommends 50 ms between answers of one server; the result of this wait is used for the whole
/// time to live.
const MAX_OTHER_WAIT: Duration = Duration::from_millis(500);

/// Result of a query: records, or `None` if there are none.
type Found = io::Result<Option<Records>>;

impl Servers {
    /// Creates servers with the defaults of glibc.
    pub(crate) fn new(addresses: Vec<SocketAddr>) -> Servers {
        Servers {
            addresses,
            search: Vec::new(),
            min_dots: 1,
            timeout: Duration::from_secs(5),
            attempts: 2,
            uses_tcp: false,
        }
    }

    /// Looks up records of at most two types, for the name with each of the search domains.
    ///
    /// # Errors
    /// If no server answers, or if there are no records.
    pub(crate) async fn search(&self, name: &str, kinds: &[RecordType]) -> io::Result<Records> {
        let mut failure = None;
        for name in self.candidates(name) {
            let found = match *kinds {
                [first, second] => self.query_both(&name, first, second).await,
                _ => self.query(&name, kinds[0]).await,
            };
            match found {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => {}
                // The servers of one domain may have failed. Without any answer, each other name
                // would take the whole time again.
                Err(error) if error.kind() == FAILED => failure = failure.or(Some(error)),
                Err(error) => return Err(error),
            }
        }
        let reason = "the DNS has no such name, or no records of it";
        Err(failure.unwrap_or_else(|| io::Error::new(io::ErrorKind::NotFound, reason)))
    }

    /// Sends queries for two types. After the records of one type, the wait for the other type is
    /// brief: some servers ignore queries for AAAA.
    async fn query_both(&self, name: &str, first: RecordType, second: RecordType) -> Found {
        let (first, second) = (pin!(self.query(name, first)), pin!(self.query(name, second)));
        let (Either::Left((found, other)) | Either::Right((found, other))) =
            select(first, second).await;
        let other = match found {
            Ok(Some(_)) => timeout(MAX_OTHER_WAIT, other).await.unwrap_or(Ok(None)),
            _ => other.await,
        };
        merge(found, other)
    }

    /// Returns the names to try, in order.
    fn candidates(&self, name: &str) -> Vec<String> {
        if name.ends_with('.') {
            return vec![name.to_owned()];
        }
        let with_domains = self.search.iter().map(|domain| format!("{name}.{domain}"));
        let own = || [name.to_owned()].into_iter();
        match name.matches('.').count() >= self.min_dots {
            true => own().chain(with_domains).collect(),
            false => with_domains.chain(own()).collect(),
        }
    }

    /// Sends a query to one server after the other until one responds.
    async fn query(&self, name: &str, kind: RecordType) -> Found {
        let question = Question { name, kind };
        let mut failure = io::Error::new(io::ErrorKind::NotConnected, "there are no servers");
        for _ in 0..self.attempts {
            for &server in &self.addresses {
                let exchanged = timeout(self.timeout, self.exchange(server, &question)).await;
                let answer = exchanged.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
                let (kind, reason) = match answer {
                    Ok(Answer::Records(records)) => return Ok(Some(records)),
                    Ok(Answer::None) => return Ok(None),
                    Ok(Answer::Failed(reason)) => (FAILED, reason),
                    Ok(Answer::NotSupported) => {
                        (FAILED, "the server does not support the query".to_owned())
                    }
                    Ok(Answer::Truncated) => (FAILED, "the answer is truncated".to_owned()),
                    Err(error) => (error.kind(), error.to_string()),
                };
                if kind == FAILED || failure.kind() != FAILED {
                    failure = io::Error::new(kind, format!("{server}: {reason}"));
                }
            }
        }
        Err(failure)
    }

    async fn exchange(&self, server: SocketAddr, question: &Question<'_>) -> io::Result<Answer> {
        if self.uses_tcp {
            return by_tcp(server, question).await;
        }
        match by_udp(server, question, true).await? {
            Answer::Truncated => by_tcp(server, question).await,
            Answer::NotSupported => by_udp(server, question, false).await,
            answer => Ok(answer),
        }
    }
}

/// Joins the addresses of two types. A failure of one of them counts only if the other has none.
fn merge(first: Found, second: Found) -> Found {
    match (first, second) {
        (Ok(Some(mut first)), Ok(Some(second))) => {
            first.data.extend(second.data);
            first.data.truncate(MAX_RECORDS);
            first.ttl = first.ttl.min(second.ttl);
            Ok(Some(first))
        }
        (Ok(Some(found)), _) | (_, Ok(Some(found))) => Ok(Some(found)),
        (Err(error), _) | (_, Err(error)) => Err(error),
        (Ok(None), Ok(None)) => Ok(None),
    }
}

/// Returns the address by which a socket is bound to no certain address.
pub(crate) fn unspecified(is_ipv4: bool) -> IpAddr {
    if is_ipv4 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}

/// Sends a query in a datagram. Only the server can send to its socket, which has a port of its
/// own; other datagrams are ignored.
async fn by_udp(server: SocketAddr, question: &Question<'_>, has_size: bool) -> io::Result<Answer> {
    let socket = UdpSocket::bind((unspecified(server.is_ipv4()), 0)).await?;
    socket.connect(server).await?;
    let id = random_id()?;
    socket.send(&question.message(id, has_size).map_err(io::Error::other)?).await?;
    let mut buffer = vec![0; MAX_DATAGRAM_BYTES];
    loop {
        let length = socket.recv(&mut buffer).await?;
        if let Some(answer) = question.read_answer(id, &buffer[..length]) {
            return Ok(answer);
        }
    }
}

/// Sends a query by TCP, in which each message has at most 65,535 bytes.
async fn by_tcp(server: SocketAddr, question: &Question<'_>) -> io::Result<Answer> {
    let id = random_id()?;
    let message = question.message(id, true).map_err(io::Error::other)?;
    let mut stream = TcpStream::connect(server).await?;
    let length = (message.len() as u16).to_be_bytes();
    stream.write_all(&[&length[..], &message].concat()).await?;
    let length = stream.read_u16().await?;
    let mut response = Vec::new();
    stream.take(length.into()).read_to_end(&mut response).await?;
    if response.len() < usize::from(length) {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let invalid = || Answer::Failed("the answer is that to another query".to_owned());
    Ok(question.read_answer(id, &response).unwrap_or_else(invalid))
}

/// Returns a number that others cannot guess (RFC 5452).
fn random_id() -> io::Result<u16> {
    let mut bytes = [0; 2];
    fill_random(&mut bytes).ok_or_else(|| io::Error::other("there are no random numbers"))?;
    Ok(u16::from_be_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn search_domains_are_tried_by_the_number_of_dots() {
        let mut servers = Servers::new(Vec::new());
        assert_eq!(servers.candidates("a"), ["a"]);
        servers.search = vec!["x.example".to_owned(), "y.example".to_owned()];
        servers.min_dots = 2;
        for (name, expected) in [
            ("a", &["a.x.example", "a.y.example", "a"][..]),
            ("a.b", &["a.b.x.example", "a.b.y.example", "a.b"]),
            ("a.b.c", &["a.b.c", "a.b.c.x.example", "a.b.c.y.example"]),
            ("a.", &["a."]),
        ] {
            assert_eq!(servers.candidates(name), expected, "{name}");
        }
    }
}
