//! Changes of the DNS by dynamic updates (RFC 2136), over TCP and signed with a key.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::Change;
use super::message::{Outcome, Update, parse_response};
use super::tsig::TsigKey;

/// Time limit for an update, with the search for the zone.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// Adds or removes a TXT record. The key authenticates the client. The signature of the response is
/// not verified: a forged response can only make the validation fail.
///
/// # Errors
/// If the server does not respond, or refuses the update.
pub(super) async fn update(
    server: &str,
    key: &Path,
    change: Change,
    name: &str,
    value: &str,
) -> Result<(), String> {
    let key = TsigKey::read(key)?;
    let update = Update { change, name, value };
    let updated = timeout(TIME_LIMIT, find_zone_and_update(server, &key, &update)).await;
    let limit = || Err(format!("no response within {} s", TIME_LIMIT.as_secs()));
    updated.unwrap_or_else(|_| limit()).map_err(|reason| format!("DNS server {server}: {reason}"))
}

/// Updates the zone of a name: the longest suffix of the name for which the server is
/// authoritative.
async fn find_zone_and_update(
    server: &str,
    key: &TsigKey,
    update: &Update<'_>,
) -> Result<(), String> {
    let failed = |error: std::io::Error| error.to_string();
    let mut stream = TcpStream::connect(server).await.map_err(failed)?;
    let mut zone = update.name;
    loop {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        // Only one message is in progress on the connection.
        let id = now as u16;
        let message = update.signed_message(zone, key, id, now)?;
        let response = exchange(&mut stream, &message).await.map_err(failed)?;
        let outcome = parse_response(&response, id).ok_or("the response is invalid")?;
        match (outcome, zone.split_once('.')) {
            (Outcome::Done, _) => return Ok(()),
            (Outcome::OtherZone, Some((_, parent))) => zone = parent,
            (Outcome::OtherZone, None) => {
                return Err(format!("it is not authoritative for {}", update.name));
            }
            (Outcome::Refused(reason), _) => {
                return Err(format!("the update of zone {zone} was refused: {reason}"));
            }
        }
    }
}

/// Sends a message and receives one; both have their length before them (RFC 1035 §4.2.2).
async fn exchange(stream: &mut TcpStream, message: &[u8]) -> std::io::Result<Vec<u8>> {
    let length = u16::try_from(message.len()).map_err(std::io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes(), message].concat()).await?;
    let length = stream.read_u16().await?;
    let mut response = vec![0; length.into()];
    stream.read_exact(&mut response).await?;
    Ok(response)
}
