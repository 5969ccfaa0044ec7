//! A chat: `cargo run --release -p weft-http --example websocket_chat -- [ADDRESS]`, then open it
//! in two windows. The query `?name=…` sets the name of the guest.

use tokio::sync::broadcast::{self, error::RecvError};
use weft::websocket::{self, Message, WebSocket};
use weft::{Request, Response};

/// Maximum number of messages that a guest may be behind before it misses some.
const MAX_BEHIND: usize = 100;

#[derive(Clone)]
struct Room(broadcast::Sender<String>);

impl Room {
    async fn respond(self, request: Request) -> Response {
        match request.path() {
            "/" => Response::html(include_str!("page.html")),
            "/chat" => websocket::accept(&request, async move |socket| {
                // An error means that the connection broke, which needs no handling.
                let _ = self.chat(socket).await;
            }),
            _ => Response::not_found(),
        }
    }

    /// Runs the chat of one guest. Its first message is its name; all others are sent to the room.
    async fn chat(self, mut guest: WebSocket) -> weft::Result<()> {
        let Some(name) = guest.receive().await? else { return Ok(()) };
        let name = name.to_text().unwrap_or("somebody").to_owned();
        let mut messages = self.0.subscribe();
        self.broadcast(format!("{name} has joined"));
        loop {
            tokio::select! {
                message = guest.receive() => match message? {
                    Some(text) => {
                        self.broadcast(format!("{name}: {}", text.to_text().unwrap_or("…")));
                    }
                    None => break,
                },
                text = messages.recv() => match text {
                    Ok(text) => guest.send(Message::text(text)).await?,
                    Err(RecvError::Lagged(missed)) => {
                        guest.send(Message::text(format!("({missed} messages missed)"))).await?;
                    }
                    Err(RecvError::Closed) => break,
                },
            }
        }
        self.broadcast(format!("{name} has left"));
        Ok(())
    }

    fn broadcast(&self, text: String) {
        // The only error is that no guest is connected.
        let _ = self.0.send(text);
    }
}

fn main() -> weft::Result<()> {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:8080".to_owned());
    let room = Room(broadcast::channel(MAX_BEHIND).0);
    weft::serve(address, move |request| room.clone().respond(request))
}
