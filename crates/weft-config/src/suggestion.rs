//! "Did you mean" suggestions for misspelled words. Pure.

/// Returns the known word with the smallest edit distance to `word`. The maximum distance is a
/// third of the length of `word`, but at least 1.
pub fn suggest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let allowed = (word.chars().count() / 3).max(1);
    let with_distance = known.map(|known| (distance(word, known), known));
    let (distance, known) = with_distance.min_by_key(|(distance, _)| *distance)?;
    (distance <= allowed).then_some(known)
}

/// Edit distance: insertions, deletions, substitutions and swaps of adjacent letters.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    rows[0] = (0..=b.len()).collect();
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let change = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut min = change.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                min = min.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = min;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_a_word_within_a_third_of_its_length() {
        let known = ["listen", "list", "links", "max_body_bytes"];
        for (word, expected) in [
            ("lisen", Some("listen")),
            ("lsit", Some("list")),
            ("max_body_byte", Some("max_body_bytes")),
            ("max-body-bytes", Some("max_body_bytes")),
            ("x", None),
            ("port", None),
            ("", None),
        ] {
            assert_eq!(suggest(word, known.into_iter()), expected, "{word}");
        }
    }
}
