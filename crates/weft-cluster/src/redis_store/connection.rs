//! A connection to the store, which is opened when a call needs it.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, FromRedisValue, RedisConnectionInfo, RedisError, Value};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::bounded_stream::{BoundedStream, ReadBudget};
use super::settings::StoreSettings;
use crate::store_error::StoreError;

/// Time for a connection with its handshakes, and for each call.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum size of the response to a call, in bytes.
const MAX_RESPONSE_BYTES: usize = 768 << 10;

/// A connection to the store. A call that fails closes it, and the next call opens another.
pub(super) struct Connection {
    settings: Arc<StoreSettings>,
    open: Option<OpenConnection>,
}

struct OpenConnection {
    redis: MultiplexedConnection,
    budget: ReadBudget,
    /// The task that reads and writes.
    driver: JoinHandle<()>,
}

impl Connection {
    pub(super) fn new(settings: Arc<StoreSettings>) -> Connection {
        Connection { settings, open: None }
    }

    /// Calls the store. `call` gets the connection; the response arrives within `time`.
    pub(super) async fn call<T: FromRedisValue>(
        &mut self,
        time: Duration,
        call: impl AsyncFnOnce(&mut MultiplexedConnection) -> Result<Value, RedisError>,
    ) -> Result<T, StoreError> {
        let mut open = match self.open.take() {
            Some(open) if !open.driver.is_finished() => open,
            _ => timeout(CALL_TIMEOUT, OpenConnection::open(&self.settings))
                .await
                .unwrap_or_else(|_| Err(timed_out()))?,
        };
        open.budget.set(MAX_RESPONSE_BYTES);
        let value = match timeout(time, call(&mut open.redis)).await {
            Err(_) => return Err(timed_out()),
            Ok(Err(_)) if open.budget.is_exceeded() => return Err(too_large()),
            Ok(value) => value.map_err(store_error)?,
        };
        let value = T::from_redis_value(value).map_err(|_| unexpected())?;
        self.open = Some(open);
        Ok(value)
    }
}

impl OpenConnection {
    async fn open(settings: &StoreSettings) -> Result<OpenConnection, StoreError> {
        let url = &settings.url;
        let failed = |error: &dyn Display| {
            StoreError::Away(format!("cannot connect to {url}: {}", StoreError::reason(error)))
        };
        let socket = TcpStream::connect((&*url.host, url.port)).await;
        let socket = socket.map_err(|error| failed(&error))?;
        // Fails only if the connection is closed.
        let _ = socket.set_nodelay(true);
        if !url.is_tls() {
            return OpenConnection::over(socket, settings).await;
        }
        let name = ServerName::try_from(url.host.clone()).map_err(|error| failed(&error))?;
        let tls = settings.tls.clone().ok_or_else(|| failed(&"TLS is not configured"))?;
        let stream = TlsConnector::from(tls).connect(name, socket).await;
        OpenConnection::over(stream.map_err(|error| failed(&error))?, settings).await
    }

    async fn over(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        settings: &StoreSettings,
    ) -> Result<OpenConnection, StoreError> {
        let mut info = RedisConnectionInfo::default()
            .set_skip_set_lib_name()
            .set_db(settings.url.database.into());
        if let Some(user) = &settings.user {
            info = info.set_username(user);
        }
        if let Some(password) = &settings.password {
            info = info.set_password(password);
        }
        let budget = ReadBudget::default();
        budget.set(MAX_RESPONSE_BYTES);
        let stream = BoundedStream { stream, budget: budget.clone() };
        // Calls have their own timeouts.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let opened = MultiplexedConnection::new_with_config(&info, stream, config).await;
        let (redis, driver) = match opened {
            Err(_) if budget.is_exceeded() => return Err(too_large()),
            opened => opened.map_err(store_error)?,
        };
        Ok(OpenConnection { redis, budget, driver: tokio::spawn(driver) })
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

fn timed_out() -> StoreError {
    StoreError::Away("the store does not answer in time".to_owned())
}

fn too_large() -> StoreError {
    StoreError::Invalid(format!("a response has more than {MAX_RESPONSE_BYTES} bytes"))
}

fn unexpected() -> StoreError {
    StoreError::Invalid("a response has another type than expected".to_owned())
}

fn store_error(error: RedisError) -> StoreError {
    let reason = StoreError::reason(&error);
    match error.kind() {
        redis::ErrorKind::Io => StoreError::Away(reason),
        redis::ErrorKind::Parse | redis::ErrorKind::UnexpectedReturnType => {
            StoreError::Invalid(reason)
        }
        _ => StoreError::Refused(reason),
    }
}
