//! A chat: `cargo run --release -p weft-http --example websocket_chat -- [ADDRESS]`, then open it
//! in two windows. Who comes with `?name=…` has that name.

use tokio::sync::broadcast::{self, error::RecvError};
use weft::websocket::{self, Message, WebSocket};
use weft::{Request, Response};

/// How many messages a guest may be behind before it misses some.
const MAX_BEHIND: usize = 100;

#[derive(Clone)]
struct Room(broadcast::Sender<String>);

impl Room {
    async fn answer(self, request: Request) -> Response {
        match request.path() {
            "/" => Response::html(include_str!("page.html")),
            "/chat" => websocket::accept(&request, async move |socket| {
                // A guest that leaves without a word has left all the same.
                let _ = self.welcome(socket).await;
            }),
            _ => Response::not_found(),
        }
    }

    /// The first message of a guest is its name, all others are what it says.
    async fn welcome(self, mut guest: WebSocket) -> weft::Result<()> {
        let Some(name) = guest.receive().await? else { return Ok(()) };
        let name = name.to_text().unwrap_or("somebody").to_owned();
        let mut heard = self.0.subscribe();
        self.say(format!("{name} has joined"));
        loop {
            tokio::select! {
                said = guest.receive() => match said? {
                    Some(text) => self.say(format!("{name}: {}", text.to_text().unwrap_or("…"))),
                    None => break,
                },
                text = heard.recv() => match text {
                    Ok(text) => guest.send(Message::text(text)).await?,
                    Err(RecvError::Lagged(missed)) => {
                        guest.send(Message::text(format!("({missed} messages missed)"))).await?;
                    }
                    Err(RecvError::Closed) => break,
                },
            }
        }
        self.say(format!("{name} has left"));
        Ok(())
    }

    fn say(&self, text: String) {
        // With nobody in the room there is nobody to hear it.
        let _ = self.0.send(text);
    }
}

fn main() -> weft::Result<()> {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:8080".to_owned());
    let room = Room(broadcast::channel(MAX_BEHIND).0);
    weft::serve(address, move |request| room.clone().answer(request))
}
