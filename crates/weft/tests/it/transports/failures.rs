//! Applications that fail before and in a response.

use super::*;

/// Asserts that a response was replaced by a 500 or is incomplete, and that it reveals no
/// internal error message.
#[track_caller]
fn assert_failed(try_collect: Result<ClientResponse, IncompleteResponse>, case: &str) {
    match try_collect {
        Ok(response) => {
            assert_eq!(response.status, 500, "{case}: the response is complete");
            assert!(!response.text().contains("purpose"), "{case}: {}", response.text());
        }
        Err(error) => assert!(matches!(error.status, None | Some(200)), "{case}: {error:?}"),
    }
}

#[test]
fn application_failure_before_the_head_returns_500() {
    on_every_transport(async |transport| {
        let (_sender, app) = scripted_body_app();
        let (server, events) = serve_with_event_log(transport, Settings::default(), app);
        let mut other = server.client().await;
        for (target, expected_error) in [
            ("/panic", "Application Panicked"),
            ("/bytes?2", "Application LengthMismatch"),
            ("/bytes?4", "Application LengthMismatch"),
            ("/bytes?x", "Application LengthMismatch"),
            ("/act?x", "Application LengthMismatch"),
        ] {
            let before = events.count(expected_error);
            let mut client = other.concurrent_client().await;
            let response = client.get(target).await;
            assert_eq!(response.status, 500, "{target}");
            assert!(!response.text().contains("purpose"), "{target}: {}", response.text());
            wait_until(&format!("{target}: {expected_error}"), || {
                events.count(expected_error) == before + 1
            })
            .await;
            let record = format!("{target} 500 {}", response.body.len());
            wait_until(&record, || events.contains(&record)).await;
            // Other requests are not affected.
            assert_eq!(other.get("/").await.text(), "ok", "{target}");
        }
        server.stop().await;
    });
}

#[test]
fn application_failure_in_body_truncates_the_response() {
    use BodyStep::{End, Fail, Panic, Piece};
    on_every_transport(async |transport| {
        let (sender, app) = scripted_body_app();
        let (server, events) = serve_with_event_log(transport, Settings::default(), app);
        let mut other = server.client().await;
        // `pieces` were received before the last step is taken.
        for (target, pieces, last, expected_error) in [
            ("/act", &[][..], Panic, "Application Panicked"),
            ("/act", &[], Fail, "Application BodyFailed"),
            ("/act", &["abc"], Panic, "Application Panicked"),
            ("/act", &["abc"], Fail, "Application BodyFailed"),
            ("/act", &["abc", "def"], Fail, "Application BodyFailed"),
            ("/act?7", &["abc"], Panic, "Application Panicked"),
            ("/act?7", &["abc"], Fail, "Application BodyFailed"),
            ("/act?7", &[], End, "Application LengthMismatch"),
            ("/act?7", &["abc", "def"], End, "Application LengthMismatch"),
            ("/act?7", &["abc", "def"], Piece("gh"), "Application LengthMismatch"),
            ("/act?2", &[], Piece("abc"), "Application LengthMismatch"),
        ] {
            let case = format!("{target} {pieces:?} {expected_error}");
            let before = events.count(expected_error);
            let mut client = other.concurrent_client().await;
            let response_future = client.send(ClientRequest::get(target)).await;
            let try_collect = match pieces {
                [] => {
                    assert!(sender.send(last).await.is_ok());
                    response_future.try_collect().await
                }
                _ => {
                    let mut response = response_future.read_head().await.unwrap();
                    let mut length = 0;
                    for piece in pieces {
                        assert!(sender.send(Piece(piece)).await.is_ok());
                        length += piece.len();
                        response.read(length).await;
                    }
                    assert!(sender.send(last).await.is_ok());
                    let try_collect = response.try_collect().await;
                    assert!(try_collect.is_err(), "{case}: the response is complete");
                    try_collect
                }
            };
            assert_failed(try_collect, &case);
            wait_until(&case, || events.count(expected_error) == before + 1).await;
            assert_eq!(other.get("/").await.text(), "ok", "{case}");
        }
        server.stop().await;
    });
}

/// A body produces data and fails at once. If the failure is marked, the data is sent.
#[test]
fn data_before_a_marked_failure_is_sent() {
    on_every_transport(async |transport| {
        let app = async |request: Request| {
            let failure = Error::new(ErrorKind::BodyFailed, "on purpose");
            let failure = if request.path() == "/marked" { failure.after_data() } else { failure };
            Response::text(Body::stream(stream::iter([Ok("abc"), Err(failure)])))
        };
        let (server, events) = serve_with_event_log(transport, Settings::default(), app);
        let mut client = server.client().await;
        let marked = client.send(ClientRequest::get("/marked")).await.try_collect().await;
        let Err(incomplete) = marked else { panic!("the response is complete") };
        let status = incomplete.status;
        assert!(
            status == Some(200) || transport.is_multiplexed() && status.is_none(),
            "{incomplete:?}"
        );
        let mut client = server.client().await;
        let unmarked = client.send(ClientRequest::get("/")).await.try_collect().await;
        assert_eq!(unmarked.is_ok(), !transport.is_multiplexed());
        assert_failed(unmarked, "a failure that is not marked");
        wait_until("both failures", || events.count("Application BodyFailed") == 2).await;
        server.stop().await;
    });
}
