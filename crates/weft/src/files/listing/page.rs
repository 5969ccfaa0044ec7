//! The listing of a folder as an HTML page. Pure.
//!
//! The page is self-contained and has no script: the column headings are links that sort. So it can
//! be sent with [`PAGE_CSP`], a second defense against markup in file names. Its links are
//! relative, so the directory can be mounted at any path.

use std::fmt::{self, Display, Formatter, Write};

use crate::files::listing::entries::{Entry, Listing, timestamp};
use crate::files::listing::human::{Count, Grouped, Size};
use crate::files::listing::order::{Order, SortKey};
use crate::message::escape::{Href, Html};

/// The `Content-Security-Policy` of the page. Its only style sheet is inline; inline styles are
/// harmless if nothing can be fetched.
pub(crate) const PAGE_CSP: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

const STYLE: &str = include_str!("page.css");

impl Listing {
    /// Writes the listing as a page. `title` is the name of the directory.
    pub(crate) fn html(&self, order: Order, title: Option<&str>) -> String {
        let mut page = String::with_capacity(8_192 + 256 * self.entries.len());
        self.write_page(&mut page, order, title).expect("writing to a String does not fail");
        page
    }

    fn write_page(&self, page: &mut String, order: Order, title: Option<&str>) -> fmt::Result {
        let path = self.whole_path();
        writeln!(page, "<!DOCTYPE html>")?;
        writeln!(page, r#"<html lang="en">"#)?;
        writeln!(page, "<head>")?;
        writeln!(page, r#"<meta charset="utf-8">"#)?;
        writeln!(page, r#"<meta name="viewport" content="width=device-width, initial-scale=1">"#)?;
        writeln!(page, r#"<meta name="color-scheme" content="light dark">"#)?;
        match title.map(|title| Html(title.as_bytes())) {
            Some(title) => writeln!(page, "<title>{title}: {}</title>", Html(&path))?,
            None => writeln!(page, "<title>Index of {}</title>", Html(&path))?,
        }
        writeln!(page, "<style>\n{STYLE}</style>\n</head>\n<body>")?;
        let root = match title {
            Some(title) => title.as_bytes().to_vec(),
            None if self.mount.is_empty() => b"Index".to_vec(),
            None => [&self.mount[..], b"/"].concat(),
        };
        self.write_heading(page, &Html(&root))?;
        writeln!(page, "<main>")?;
        if self.truncated {
            let shown = Grouped(self.entries.len() as u64);
            write!(page, r#"<p class="note">Not all of this folder is listed: "#)?;
            writeln!(page, "it has more than these {shown} entries.</p>")?;
        }
        match self.entries.is_empty() {
            true => self.write_empty(page)?,
            false => self.write_table(page, order)?,
        }
        writeln!(page, "</main>\n</body>\n</html>")
    }

    /// Writes the folder's name, and above it links to its parent folders, from the root, which is
    /// called `title`.
    fn write_heading(&self, page: &mut String, title: &Html<'_>) -> fmt::Result {
        if self.path.is_empty() {
            return writeln!(page, "<header>\n<h1>{title}</h1>\n</header>");
        }
        let mut above: Vec<&[u8]> = self.path.split(|&b| b == b'/').collect();
        let name = Html(above.pop().unwrap_or_default());
        let up = |levels: usize| "../".repeat(levels);
        writeln!(page, "<header>\n<nav aria-label=\"Folders above\">\n<ol>")?;
        writeln!(page, r#"<li><a href="{}">{title}</a></li>"#, up(above.len() + 1))?;
        for (number, name) in above.iter().enumerate() {
            let (up, name) = (up(above.len() - number), Html(name));
            writeln!(page, r#"<li><a href="{up}"><bdi>{name}</bdi></a></li>"#)?;
        }
        writeln!(page, "</ol>\n</nav>\n<h1><bdi>{name}</bdi></h1>\n</header>")
    }

    fn write_empty(&self, page: &mut String) -> fmt::Result {
        writeln!(page, "<p>Nothing is listed here.</p>")?;
        match self.has_parent() {
            false => Ok(()),
            true => writeln!(page, r#"<p><a href="../">Parent folder</a></p>"#),
        }
    }

    fn write_table(&self, page: &mut String, order: Order) -> fmt::Result {
        writeln!(page, "<table>\n<caption>{}</caption>\n<thead>\n<tr>", Summary(&self.entries))?;
        for (by, label) in
            [(SortKey::Name, "Name"), (SortKey::Size, "Size"), (SortKey::Date, "Modified (UTC)")]
        {
            let (state, next) = (aria_sort(order, by), order.after_click(by));
            let (sort, direction) = (next.by.query_value(), next.direction());
            // Keeps crawlers from fetching a folder in all of its orders.
            write!(page, r#"<th scope="col"{state}><a rel="nofollow" "#)?;
            writeln!(page, r#"href="?sort={sort}&amp;order={direction}">{label}</a></th>"#)?;
        }
        writeln!(page, "</tr>\n</thead>\n<tbody>")?;
        if self.has_parent() {
            write!(page, r#"<tr><th scope="row" colspan="3">"#)?;
            writeln!(page, r#"<a href="../">Parent folder</a></th></tr>"#)?;
        }
        order.sorted(&self.entries).try_for_each(|entry| write_row(page, entry))?;
        writeln!(page, "</tbody>\n</table>")
    }

    /// Returns true unless this is the top of the host, as clients see it.
    fn has_parent(&self) -> bool {
        !self.path.is_empty() || !self.mount.is_empty()
    }
}

/// Returns the `aria-sort` attribute of a column heading; empty unless the page is sorted by it.
fn aria_sort(order: Order, by: SortKey) -> &'static str {
    match (order.by == by, order.is_descending) {
        (true, false) => r#" aria-sort="ascending""#,
        (true, true) => r#" aria-sort="descending""#,
        (false, _) => "",
    }
}

fn write_row(page: &mut String, entry: &Entry) -> fmt::Result {
    let (href, name) = (Href(&entry.name), Html(&entry.name));
    let slash = if entry.is_folder { "/" } else { "" };
    write!(page, r#"<tr><th scope="row"><a href="./{href}{slash}">"#)?;
    write!(page, "<bdi>{name}</bdi>{slash}</a></th>")?;
    match entry.is_folder {
        true => write!(page, "<td></td>")?,
        false => {
            let (exact, size) = (Count(entry.length, "byte"), Size(entry.length));
            write!(page, r#"<td title="{exact}">{size}</td>"#)?;
        }
    }
    let Some(seconds) = entry.modified else { return writeln!(page, "<td></td></tr>") };
    let instant = timestamp(seconds);
    let (date, time) = (&instant[..10], &instant[11..16]);
    writeln!(page, r#"<td><time datetime="{instant}">{date} {time}</time></td></tr>"#)
}

/// The number of entries and their total size.
struct Summary<'a>(&'a [Entry]);

impl Display for Summary<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let folders = self.0.iter().filter(|entry| entry.is_folder).count();
        let files = self.0.len() - folders;
        let length = self.0.iter().fold(0, |sum: u64, entry| sum.saturating_add(entry.length));
        let (folders, files) = (Count(folders as u64, "folder"), Count(files as u64, "file"));
        match (folders.0, files.0) {
            (_, 0) => write!(f, "{folders}"),
            (0, _) => write!(f, "{files}, {}", Size(length)),
            _ => write!(f, "{folders}, {files}, {}", Size(length)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &[u8], length: u64) -> Entry {
        Entry { name: name.into(), is_folder: false, length, modified: Some(1_795_258_261) }
    }

    fn folder(name: &[u8]) -> Entry {
        Entry { is_folder: true, ..file(name, 0) }
    }

    fn page(path: &[u8], entries: &[Entry], query: &str) -> String {
        let listing =
            Listing { path: path.into(), mount: vec![], entries: entries.into(), truncated: false };
        listing.html(Order::from_query(Some(query)), None)
    }

    /// Returns the targets of all links of a page, in order.
    fn links(page: &str) -> Vec<&str> {
        let (_, body) = page.split_once("</style>").unwrap();
        body.split("href=\"").skip(1).map(|rest| rest.split_once('"').unwrap().0).collect()
    }

    #[test]
    fn rows_show_name_size_and_time() {
        for (entry, row) in [
            (
                file(b"a b.txt", 1_234_567),
                r#"<tr><th scope="row"><a href="./a%20b.txt"><bdi>a b.txt</bdi></a></th><td title="1,234,567 bytes">1.2 MiB</td><td><time datetime="2026-11-21T10:51:01Z">2026-11-21 10:51</time></td></tr>"#,
            ),
            (
                folder(b"<img onerror=\"\xff\">"),
                r#"<tr><th scope="row"><a href="./%3Cimg%20onerror%3D%22%FF%22%3E/"><bdi>&lt;img onerror=&quot;�&quot;&gt;</bdi>/</a></th><td></td><td><time datetime="2026-11-21T10:51:01Z">2026-11-21 10:51</time></td></tr>"#,
            ),
        ] {
            let page = page(b"", &[entry], "");
            assert!(page.lines().any(|line| line == row), "{page}\nshould have the line\n{row}");
        }
    }

    #[test]
    fn links_are_relative_and_encoded() {
        let entries = [file(b"javascript:alert(1)", 1), folder(b"a:b"), file(b"//c?d#e", 2)];
        let root = ["?sort=name&amp;order=asc", "?sort=size&amp;order=asc"];
        let root = [&root[..], &["?sort=date&amp;order=desc"]].concat();
        let rows = ["./a%3Ab/", "./%2F%2Fc%3Fd%23e", "./javascript%3Aalert%281%29"];
        let query = "sort=size&order=desc";
        assert_eq!(links(&page(b"", &entries, query)), [&root, &rows[..]].concat());

        let above = ["../../../", "../../", "../"];
        let expected = [&above[..], &root, &["../"], &rows].concat();
        assert_eq!(links(&page(b"x/y/z", &entries, query)), expected);

        assert_eq!(links(&page(b"x", &[], "")), ["../", "../"]);
        assert_eq!(links(&page(b"", &[], "")), [""; 0]);
    }

    #[test]
    fn marks_the_sort_column() {
        for (query, expected) in [
            ("", r#"<th scope="col" aria-sort="ascending"><a rel="nofollow" href="?sort=name"#),
            (
                "sort=date&order=desc",
                r#"<th scope="col" aria-sort="descending"><a rel="nofollow" href="?sort=date"#,
            ),
        ] {
            let page = page(b"", &[file(b"a", 1)], query);
            assert!(page.contains(expected), "{query}");
            assert_eq!(page.matches("aria-sort=\"").count(), 1, "{query}");
        }
    }

    #[test]
    fn escapes_the_path() {
        let page = page(b"a&b/<script>/\xe2\x80\xaex\n", &[], "");
        let (title, heading) = ("/a&amp;b/&lt;script&gt;/\u{fffd}x␊/", "\u{fffd}x␊");
        assert!(page.contains(&format!("<title>Index of {title}</title>")), "{page}");
        assert!(page.contains(&format!("<h1><bdi>{heading}</bdi></h1>")), "{page}");
        assert!(page.contains("<a href=\"../../\"><bdi>a&amp;b</bdi></a>"), "{page}");
        assert!(!page.contains("<script"));
    }

    #[test]
    fn title_names_the_directory() {
        for (path, title, heading) in [
            ("", "A&amp;B: /", "<h1>A&amp;B</h1>"),
            ("docs", "A&amp;B: /docs/", "<a href=\"../\">A&amp;B</a>"),
        ] {
            let listing =
                Listing { path: path.into(), mount: vec![], entries: vec![], truncated: false };
            let page = listing.html(Order::default(), Some("A&B"));
            assert!(page.contains(&format!("<title>{title}</title>")), "{page}");
            assert!(page.contains(heading) && !page.contains("Index"), "{page}");
        }
    }

    #[test]
    fn path_includes_the_prefix_of_a_mount() {
        for (path, title, heading, parents) in [
            ("", "Index of /a&amp;b/pub/", "<h1>/a&amp;b/pub/</h1>", 1),
            ("x", "Index of /a&amp;b/pub/x/", "<a href=\"../\">/a&amp;b/pub/</a>", 1),
        ] {
            for entries in [vec![], vec![file(b"a", 1)]] {
                let (path, mount) = (path.into(), b"/a&b/pub".to_vec());
                let listing = Listing { path, mount, entries, truncated: false };
                let page = listing.html(Order::default(), None);
                assert!(page.contains(&format!("<title>{title}</title>")), "{page}");
                assert!(page.contains(heading), "{page}");
                let links = page.matches("<a href=\"../\">Parent folder</a>").count();
                assert_eq!(links, parents, "{page}");
            }
        }
    }

    #[test]
    fn notes_that_a_listing_is_truncated() {
        let mut listing = Listing {
            path: vec![],
            mount: vec![],
            entries: vec![file(b"a", 1); 1_000],
            truncated: true,
        };
        let notice = "Not all of this folder is listed: it has more than these 1,000 entries.";
        assert!(listing.html(Order::default(), None).contains(notice));
        listing.truncated = false;
        assert!(!listing.html(Order::default(), None).contains("Not all"));
    }

    #[test]
    fn summarizes_counts_and_total_size() {
        let entries = [folder(b"a"), folder(b"b"), file(b"c", 700), file(b"d", 700)];
        for (entries, expected) in [
            (&entries[..1], "1 folder"),
            (&entries[..2], "2 folders"),
            (&entries[1..], "1 folder, 2 files, 1.4 KiB"),
            (&entries[3..], "1 file, 700 B"),
        ] {
            assert_eq!(Summary(entries).to_string(), expected);
        }
    }

    /// [`PAGE_CSP`] blocks all fetches, so the page must not need any.
    #[test]
    fn page_fetches_nothing() {
        let page = page(b"a/b", &[file(b"c", 1)], "");
        for word in ["<script", "<link", "<img", "<base", "@import", "url(", "src=", "style=\""] {
            assert!(!page.contains(word), "{word}");
        }
    }
}
