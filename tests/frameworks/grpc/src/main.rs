//! Serves `example.v1.Chat`, on 127.0.0.1:50051 or the address in the first argument.

use example_grpc::{app, routes};

fn main() -> weft::Result<()> {
    // The state of the health service is set before there is a worker.
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let app = app(runtime.block_on(routes()), "http://127.0.0.1:8000");
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:50051".to_owned());
    weft::serve(address, app)
}
