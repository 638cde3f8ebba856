//! How owners and shares are written into values, so that people can read them and scripts can cut them.

use leasehold_core::{Owner, Share};

/// `host/user/pid/program/tag`, with `/`, `|` and `%` of the parts written as `%..`.
pub(crate) fn owner(owner: &Owner) -> String {
    // Destructured in full: what is forgotten here nobody would read.
    let Owner { host, user, pid, program, tag } = owner;
    let parts = [host.as_str(), user, &pid.to_string(), program, tag];
    parts.map(escape).join("/")
}

/// The owner that was written so; what was not is its program, for people to read.
pub(crate) fn owner_of(text: &str) -> Owner {
    let parts: Vec<String> = text.split('/').map(unescape).collect();
    match <[String; 5]>::try_from(parts) {
        Ok([host, user, pid, program, tag]) => {
            Owner { host, user, pid: pid.parse().unwrap_or(0), program, tag }
        }
        Err(_) => Owner { program: unescape(text), ..Owner::default() },
    }
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '/' | '|' | '%') || c.is_ascii_control() {
            escaped.push_str(&format!("%{:02x}", u32::from(c)));
        } else {
            escaped.push(c);
        }
    }
    escaped
}

fn unescape(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// A share as a member of a line has it; `None` for what cannot be one.
pub(crate) fn share(take: u64, of: u64) -> Option<Share> {
    Share::from_parts(u32::try_from(take).ok()?, u32::try_from(of).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_read_as_they_were_written() {
        let one = Owner {
            host: "web/1".to_owned(),
            user: "ü|%".to_owned(),
            pid: 7,
            program: "a b\n".to_owned(),
            tag: String::new(),
        };
        let text = owner(&one);
        assert_eq!(owner_of(&text), one);
        assert!(!text.contains(['|', '\n']));
        assert_eq!(owner_of(&owner(&Owner::default())), Owner::default());
        assert_eq!(owner_of("somebody").program, "somebody");
    }
}
