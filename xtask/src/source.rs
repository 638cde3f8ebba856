//! Rust source taken apart as far as the checks need it: code, comments, texts.

use std::ops::Range;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Comment,
    /// What stands between the quotes of a string literal.
    Text,
    /// A character literal, quotes included.
    Char,
}

/// The code alone: comments and the inside of literals are blanks, lines stay lines, and what stands after the
/// first `#[cfg(test)]` module is left out.
pub(crate) fn code(source: &str) -> String {
    let mut bytes = source.as_bytes().to_vec();
    for (_, range) in pieces(source) {
        for byte in &mut bytes[range] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
    }
    // Whole characters were blanked, so what is left is UTF-8 still.
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The code of what is shipped: that before the first module of tests, which stands last by habit.
pub(crate) fn shipped(source: &str) -> String {
    let mut code = code(source);
    let tests = ["#[cfg(test)]\nmod ", "#[cfg(all(test"].iter().filter_map(|start| code.find(start)).min();
    code.truncate(tests.unwrap_or(code.len()));
    code
}

/// All string literals, in order, as they are written (escapes are not resolved).
pub(crate) fn texts(source: &str) -> Vec<&str> {
    let texts = pieces(source).into_iter().filter(|(kind, _)| *kind == Kind::Text);
    texts.map(|(_, range)| &source[range]).collect()
}

/// The number of the line that holds this byte.
pub(crate) fn line_of(source: &str, byte: usize) -> usize {
    source[..byte].matches('\n').count() + 1
}

/// Whether the byte at `at` goes on a word: so `r` in `for"` does not start a raw string.
fn goes_on(bytes: &[u8], at: usize) -> bool {
    at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_')
}

fn pieces(source: &str) -> Vec<(Kind, Range<usize>)> {
    let bytes = source.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let (kind, range) = if rest.starts_with(b"//") {
            let end = source[at..].find('\n').map_or(bytes.len(), |end| at + end);
            (Kind::Comment, at..end)
        } else if rest.starts_with(b"/*") {
            (Kind::Comment, at..end_of_block(bytes, at))
        } else if let Some(start) = raw_text(bytes, at) {
            let hashes = start - 1 - at - rest.iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
            let close = format!("\"{}", "#".repeat(hashes));
            let end = source[start..].find(&close).map_or(bytes.len(), |end| start + end);
            found.push((Kind::Text, start..end));
            at = end + close.len();
            continue;
        } else if rest[0] == b'"' {
            let mut end = at + 1;
            while end < bytes.len() && bytes[end] != b'"' {
                end += if bytes[end] == b'\\' { 2 } else { 1 };
            }
            let end = end.min(bytes.len());
            found.push((Kind::Text, at + 1..end));
            at = end + 1;
            continue;
        } else if let Some(end) = character(source, at) {
            (Kind::Char, at..end)
        } else {
            at += 1;
            continue;
        };
        at = range.end;
        found.push((kind, range));
    }
    found
}

fn end_of_block(bytes: &[u8], at: usize) -> usize {
    let (mut depth, mut end) = (0_usize, at);
    while end < bytes.len() {
        if bytes[end..].starts_with(b"/*") {
            (depth, end) = (depth + 1, end + 2);
        } else if bytes[end..].starts_with(b"*/") {
            (depth, end) = (depth - 1, end + 2);
            if depth == 0 {
                return end;
            }
        } else {
            end += 1;
        }
    }
    bytes.len()
}

/// Where the inside of a raw string begins whose prefix stands at `at`.
fn raw_text(bytes: &[u8], at: usize) -> Option<usize> {
    if goes_on(bytes, at) {
        return None;
    }
    let rest = &bytes[at..];
    let prefix = ["r", "br", "cr"].into_iter().find(|prefix| {
        rest.starts_with(prefix.as_bytes()) && matches!(rest.get(prefix.len()), Some(b'"' | b'#'))
    })?;
    let hashes = rest[prefix.len()..].iter().take_while(|byte| **byte == b'#').count();
    let quote = prefix.len() + hashes;
    (rest.get(quote) == Some(&b'"')).then_some(at + quote + 1)
}

/// Where a character literal at `at` ends; a lifetime is none.
fn character(source: &str, at: usize) -> Option<usize> {
    let rest = source[at..].strip_prefix('\'')?;
    if let Some(escaped) = rest.strip_prefix('\\') {
        let skipped = escaped.chars().next()?.len_utf8();
        return escaped[skipped..].find('\'').map(|end| at + 2 + skipped + end + 1);
    }
    let char = rest.chars().next()?;
    rest[char.len_utf8()..].starts_with('\'').then_some(at + 1 + char.len_utf8() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_texts_are_not_code() {
        let source = "a(\"todo!()\"); // todo!()\n/* /* x */ y */ b('\"', r#\"q\"w\"#); c<'a>(b\"z\")";
        let code = code(source);
        assert!(!code.contains("todo") && !code.contains('q') && !code.contains('x') && !code.contains('z'));
        assert!(code.contains("b(") && code.contains("c<'a>("), "{code}");
        assert_eq!(texts(source), ["todo!()", "q\"w", "z"]);
    }

    #[test]
    fn escapes_do_not_end_a_text() {
        assert_eq!(texts(r#"f("a\"b", '\'', "\\", 'x')"#), [r#"a\"b"#, r"\\"]);
    }

    #[test]
    fn tests_are_not_shipped() {
        let source = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\n";
        assert_eq!(shipped(source), "fn a() {}\n");
        assert_eq!(line_of(source, source.find("fn b").unwrap()), 4);
    }
}
