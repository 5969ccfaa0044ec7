//~ `Site` is not an application
//~ expected an application here
//~ an application is an async function or closure from `weft::Request` to `weft::Response`

use weft::serve;

#[derive(Clone)]
struct Site;

fn main() {
    let _ = serve("127.0.0.1:0", Site);
}
