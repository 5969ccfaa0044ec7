//! The attacking client of HTTP/3: connections that each follow the script of the attack, and
//! clients of UDP without a connection.

use std::any::Any;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quinn::crypto::rustls::QuicClientConfig;
use quinn::{
    ClientConfig, Connection, ConnectionError, Endpoint, ReadError, SendStream, TransportConfig,
    VarInt, WriteError,
};
use tokio::net::UdpSocket;
use tokio::time::{sleep, timeout};

use super::wire::{HEADERS, error_name, status};
use crate::budgets::attack::{Attack, Ends, Http3Streams, Reads};
use crate::budgets::client::{Progress, SERVED_TIMEOUT, WRITE_BYTES};
use crate::common::http3::Http3Response;
use crate::common::tls_client::tls_settings;

/// Window of a client that reads nothing.
const SMALL_WINDOW: u32 = 16 << 10;

/// Answer of a connection: the first status, and the first error of a stream.
#[derive(Default)]
struct Answer {
    status: Option<u16>,
    reset: Option<String>,
}

/// Runs an attack until its end; returns the answer on each connection.
pub async fn run(
    attack: &Attack,
    streams: Http3Streams,
    address: SocketAddr,
    progress: &Arc<Progress>,
) -> Vec<String> {
    let endpoint = Endpoint::client((attack.source, 0).into()).unwrap();
    let mut connections = Vec::new();
    for _ in 0..attack.connections {
        let connecting = endpoint.connect_with(config(attack.reads), address, "localhost");
        connections.push(connecting.unwrap().await.expect("a connection"));
    }
    progress.is_open.store(true, Relaxed);
    let tasks = connections.into_iter().map(|connection| {
        let (attack, progress) = (attack.clone(), progress.clone());
        tokio::spawn(async move { follow(&attack, streams, connection, &progress).await })
    });
    let mut answers = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        answers.push(task.await.expect("a connection does not panic"));
    }
    let _ = timeout(Duration::from_secs(5), endpoint.wait_idle()).await;
    answers
}

fn config(reads: Reads) -> ClientConfig {
    let tls = QuicClientConfig::try_from(tls_settings(&["h3"])).expect("TLS 1.3");
    let mut config = ClientConfig::new(Arc::new(tls));
    if reads == Reads::Nothing {
        let mut transport = TransportConfig::default();
        transport.stream_receive_window(SMALL_WINDOW.into());
        config.transport_config(Arc::new(transport));
    }
    config
}

/// Follows the script on one connection; returns the answer.
async fn follow(
    attack: &Attack,
    streams: Http3Streams,
    connection: Connection,
    progress: &Progress,
) -> String {
    let answer = Arc::<Mutex<Answer>>::default();
    let mut held = Held::new();
    let script = async {
        // The server may close the connection at any time.
        let _ = send(attack, streams, &connection, &mut held, &answer, progress).await;
        match attack.ends {
            Ends::Served(hold) => {
                sleep(hold).await;
                let has_answer = || answer.lock().unwrap().status.is_some();
                while !hold.is_zero() && !attack.answer.contains("nothing") && !has_answer() {
                    sleep(Duration::from_millis(5)).await;
                }
            }
            Ends::GivenUp(_) => std::future::pending().await,
        }
    };
    let limit = match &attack.ends {
        Ends::Served(_) => SERVED_TIMEOUT,
        Ends::GivenUp(seconds) => Duration::from_secs_f64(*seconds.end()),
    };
    let closed = tokio::select! {
        _ = timeout(limit, script) => None,
        error = connection.closed() => Some(error),
    };
    progress.closed.fetch_add(usize::from(closed.is_some()), Relaxed);
    connection.close(VarInt::from_u32(0x100), b"");
    let answer = std::mem::take(&mut *answer.lock().unwrap());
    match closed {
        Some(ConnectionError::ApplicationClosed(close))
            if close.error_code != VarInt::from_u32(0x100) =>
        {
            error_name(close.error_code.into_inner())
        }
        Some(ConnectionError::ConnectionClosed(close)) => close.to_string(),
        _ => match (answer.status, answer.reset) {
            (Some(status), _) => status.to_string(),
            (None, Some(reset)) => reset,
            (None, None) => "nothing".to_owned(),
        },
    }
}

/// Streams that are kept open.
type Held = Vec<Box<dyn Any + Send>>;

/// Sends the script.
async fn send(
    attack: &Attack,
    streams: Http3Streams,
    connection: &Connection,
    held: &mut Held,
    answer: &Arc<Mutex<Answer>>,
    progress: &Progress,
) -> Result<(), WriteError> {
    let mut first = connection.open_uni().await?;
    write(&mut first, &attack.once, progress).await?;
    let mut single = match streams {
        Http3Streams::First => Some(first),
        Http3Streams::OneUnidirectional => {
            held.push(Box::new(first));
            Some(connection.open_uni().await?)
        }
        Http3Streams::OneRequest => {
            held.push(Box::new(first));
            Some(open_request(attack, connection, held, answer).await?)
        }
        Http3Streams::Unidirectional | Http3Streams::Requests | Http3Streams::Resets => {
            held.push(Box::new(first));
            None
        }
    };
    let mut batch = Vec::new();
    for number in 0..attack.times {
        if let Some(pace) = attack.pace {
            sleep(pace).await;
        }
        let bytes = (attack.repeat)(number);
        if let Some(stream) = &mut single {
            batch.extend(bytes);
            if attack.pace.is_some() || batch.len() > WRITE_BYTES || number + 1 == attack.times {
                write(stream, &std::mem::take(&mut batch), progress).await?;
            }
            continue;
        }
        let mut stream = match streams {
            Http3Streams::Unidirectional => connection.open_uni().await?,
            _ => open_request(attack, connection, held, answer).await?,
        };
        // A stream that the server has stopped does not end the script.
        let _ = write(&mut stream, &bytes, progress).await;
        let _ = match streams {
            Http3Streams::Resets => stream.reset(VarInt::from_u32(0x10c)),
            _ => stream.finish(),
        };
    }
    held.push(Box::new(single));
    Ok(())
}

async fn write(
    stream: &mut SendStream,
    bytes: &[u8],
    progress: &Progress,
) -> Result<(), WriteError> {
    stream.write_all(bytes).await?;
    progress.sent.fetch_add(bytes.len() as u64, Relaxed);
    Ok(())
}

/// Opens a request stream, and receives its response in another task if the attacker reads.
async fn open_request(
    attack: &Attack,
    connection: &Connection,
    held: &mut Held,
    answer: &Arc<Mutex<Answer>>,
) -> Result<SendStream, ConnectionError> {
    let (send, receive) = connection.open_bi().await?;
    if attack.reads == Reads::Nothing {
        held.push(Box::new(receive));
    } else {
        tokio::spawn(receive_response(Http3Response::new(receive), answer.clone()));
    }
    Ok(send)
}

async fn receive_response(mut response: Http3Response, answer: Arc<Mutex<Answer>>) {
    loop {
        match response.frame().await {
            Ok(Some((HEADERS, section))) => {
                let mut answer = answer.lock().unwrap();
                answer.status = answer.status.or(status(&section));
            }
            Ok(Some(_)) => {}
            Ok(None) => return,
            Err(error) => {
                if let ReadError::Reset(code) = error {
                    answer.lock().unwrap().reset = Some(error_name(code.into_inner()));
                }
                return;
            }
        }
    }
}

/// Sends the script as datagrams without a connection, each connection of the attack from its own
/// socket.
pub async fn send_datagrams(
    attack: &Attack,
    address: SocketAddr,
    progress: &Progress,
) -> Vec<String> {
    progress.is_open.store(true, Relaxed);
    for _ in 0..attack.connections {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        socket.connect(address).await.unwrap();
        for number in 0..attack.times {
            let datagram = (attack.repeat)(number);
            let _ = socket.send(&datagram).await;
            progress.sent.fetch_add(datagram.len() as u64, Relaxed);
            if number % 64 == 63 {
                // The kernel of a busy machine would drop most of them.
                sleep(Duration::from_millis(1)).await;
            }
        }
    }
    vec!["nothing".to_owned()]
}
