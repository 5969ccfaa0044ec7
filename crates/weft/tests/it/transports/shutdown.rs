//! The shutdown of a server.

use super::*;

#[test]
fn shutdown_finishes_active_requests_and_closes_idle_connections() {
    on_every_transport(async |transport| {
        let (started, release) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let (count, released) = (started.clone(), release.clone());
        let server = transport.serve(move |request: Request| {
            let (count, released) = (count.clone(), released.clone());
            async move {
                if request.path() == "/slow" {
                    count.fetch_add(1, SeqCst);
                    released.notified().await;
                }
                Response::text("done")
            }
        });
        let address = server.address;
        let (mut idle, mut busy, fresh) =
            (server.client().await, server.client().await, server.client().await);
        assert_eq!(idle.get("/").await.text(), "done");
        assert_eq!(busy.get("/").await.text(), "done");
        let response_future = busy.send(ClientRequest::get("/slow")).await;
        wait_until("the call starts", || started.load(SeqCst) == 1).await;
        let stopping = server.shutdown(TEST_TIMEOUT);
        idle.wait_closed().await;
        fresh.wait_closed().await;
        while Client::try_connect(transport, address).await.is_ok() {
            tokio::task::yield_now().await;
        }
        assert!(!stopping.is_finished(), "a request is still active");
        release.notify_one();
        assert_eq!(response_future.collect().await.text(), "done");
        busy.wait_closed().await;
        stopping.await.unwrap();
    });
}

#[test]
fn shutdown_aborts_requests_after_the_grace_period() {
    on_every_transport(async |transport| {
        let started = Arc::new(AtomicUsize::new(0));
        let count = started.clone();
        let server = transport.serve(move |_: Request| {
            count.fetch_add(1, SeqCst);
            pending::<Response>()
        });
        let mut client = server.client().await;
        let response_future = client.send(ClientRequest::get("/")).await;
        wait_until("the call starts", || started.load(SeqCst) == 1).await;
        server.shutdown(Duration::from_millis(50)).await.unwrap();
        let error = response_future.try_collect().await.expect_err("the request is aborted");
        assert_eq!(error.status, None);
        client.wait_closed().await;
    });
}

#[test]
fn shutdown_notifies_response_streams() {
    on_every_transport(async |transport| {
        let server = transport.serve(async |request: Request| {
            let mut shutdown = request.shutdown();
            let last = async move {
                shutdown.requested().await;
                Ok::<_, Error>(Bytes::from("goodbye"))
            };
            let first = async { Ok(Bytes::from("hello ")) };
            Response::from_body(Body::stream(stream::once(first).chain(stream::once(last))))
        });
        let mut client = server.client().await;
        let mut response = client.send(ClientRequest::get("/")).await.read_head().await.unwrap();
        assert_eq!(response.read(6).await, b"hello ");
        let stopping = server.shutdown(TEST_TIMEOUT);
        assert_eq!(response.collect().await.text(), "hello goodbye");
        client.wait_closed().await;
        stopping.await.unwrap();
    });
}

#[test]
fn shutdown_completes_uploads() {
    on_every_transport(async |transport| {
        let server = transport.serve(echo);
        let mut client = server.client().await;
        let (request, upload) = ClientRequest::post("/").upload();
        let response_future = client.send(request).await;
        assert!(upload.send("hello ").await);
        let mut response = response_future.read_head().await.unwrap();
        response.read(6).await;
        let address = server.address;
        let stopping = server.shutdown(TEST_TIMEOUT);
        while Client::try_connect(transport, address).await.is_ok() {
            tokio::task::yield_now().await;
        }
        assert!(upload.send("goodbye").await);
        drop(upload);
        assert_eq!(response.collect().await.text(), "hello goodbye");
        client.wait_closed().await;
        stopping.await.unwrap();
    });
}
