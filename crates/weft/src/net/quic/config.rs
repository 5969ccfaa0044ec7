//! The configuration of the transport.

use std::sync::Arc;
use std::time::Duration;

use quinn_proto::congestion::{BbrConfig, CubicConfig};
use quinn_proto::{EndpointConfig, IdleTimeout, ServerConfig, TransportConfig, VarInt};

use crate::error::{Error, Result};
use crate::net::quic::connection_id::WorkerIds;
use crate::net::quic::crypto::ServerCrypto;
use crate::net::secure::{QuicKeys, QuicLimits};
use crate::settings::{Congestion, Settings};

/// Number of streams that a connection starts with. The transport stores the state of all permitted
/// streams from the beginning, so that the limit is raised when a client uses them.
pub(crate) const INITIAL_STREAMS: u32 = 16;

/// Maximum number of unidirectional streams of a client: the control stream, two of QPACK, and some
/// of unknown types (RFC 9114 §6.2).
const UNIDIRECTIONAL_STREAMS: u32 = 8;

/// Limits of the data of a stream and of a connection that is received and not read.
const STREAM_WINDOW_BYTES: u32 = 256 << 10;

/// Data of a connection that is written and not acknowledged, before the path is known.
pub(super) const INITIAL_SEND_WINDOW_BYTES: u64 = 256 << 10;

/// Limits of datagrams that arrive before their connection is accepted. It is accepted at once.
const INCOMING_BUFFER_BYTES: u64 = 64 << 10;
const MAX_INCOMING: usize = 1 << 10;

/// Maximum time without a datagram of a client that has requests in progress.
const MIN_IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Configuration of new connections.
#[derive(Clone)]
pub(crate) struct QuicConfig(pub(super) Arc<ServerConfig>);

impl QuicConfig {
    /// Combines the settings with a configuration of TLS.
    pub(crate) fn new(
        tls: Arc<rustls::ServerConfig>,
        keys: &QuicKeys,
        settings: &Settings,
    ) -> Result<QuicConfig> {
        let crypto = ServerCrypto::new(tls).map_err(|error| {
            Error::invalid_setting("cannot configure QUIC".to_owned()).with_source(error)
        })?;
        let mut config = ServerConfig::new(Arc::new(crypto), keys.token.clone());
        config
            .transport_config(Arc::new(transport(settings)))
            .max_incoming(MAX_INCOMING)
            .incoming_buffer_size(INCOMING_BUFFER_BYTES)
            .incoming_buffer_size_total(INCOMING_BUFFER_BYTES * 16);
        Ok(QuicConfig(Arc::new(config)))
    }
}

/// Returns the limits that a client stores for the early data of its next connection.
pub(crate) fn limits(settings: &Settings) -> QuicLimits {
    let (streams, window) = initial_limits(settings);
    [streams.into(), window.into(), settings.max_head_bytes as u64]
}

/// Returns the initial limits of streams and of the data of a connection.
fn initial_limits(settings: &Settings) -> (u32, u32) {
    let streams = settings.max_concurrent_streams.min(INITIAL_STREAMS);
    (streams, settings.body_window_bytes.max(STREAM_WINDOW_BYTES))
}

fn transport(settings: &Settings) -> TransportConfig {
    let (streams, window) = initial_limits(settings);
    let idle = settings.idle_timeout.max(MIN_IDLE_TIMEOUT);
    let mut config = TransportConfig::default();
    config
        .max_concurrent_bidi_streams(streams.into())
        .max_concurrent_uni_streams(UNIDIRECTIONAL_STREAMS.into())
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW_BYTES))
        .receive_window(VarInt::from_u32(window))
        .send_window(INITIAL_SEND_WINDOW_BYTES)
        .send_fairness(false)
        .max_idle_timeout(Some(IdleTimeout::try_from(idle).unwrap_or(VarInt::MAX.into())))
        .datagram_receive_buffer_size(None);
    match settings.congestion {
        Congestion::Bbr => config.congestion_controller_factory(Arc::new(BbrConfig::default())),
        Congestion::Cubic => config.congestion_controller_factory(Arc::new(CubicConfig::default())),
    };
    config
}

/// Configuration of the endpoint of a worker.
pub(super) fn endpoint(keys: &QuicKeys, generation: u16, worker: u8) -> EndpointConfig {
    let mut config = EndpointConfig::new(keys.reset.clone());
    let mask = keys.ids.clone();
    config.cid_generator(move || Box::new(WorkerIds { generation, worker, mask: mask.clone() }));
    config
}
