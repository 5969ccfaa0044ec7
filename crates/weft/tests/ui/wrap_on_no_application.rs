//~ `Site: weft::Application`

use weft::Application;
use weft::middleware::Compress;

struct Site;

fn main() {
    let _ = Site.wrap(Compress::new());
}
