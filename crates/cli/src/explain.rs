//! `leasehold explain`: a long text for each number and topic.

use leasehold::Code;

use crate::exit;
use crate::failure::Failure;
use crate::talk::print;

/// One section for each code, under a heading `# LHxxxx: what it is`.
const CODES: &str = include_str!("../explain/codes.md");
const STORES: &str = include_str!("../explain/stores.md");
const FENCING: &str = include_str!("../explain/fencing.md");
const DOCTOR: &str = include_str!("../explain/doctor.md");
const CONFIG: &str = include_str!("../explain/config.md");

const TOPICS: &[(&str, &str)] = &[
    ("exit-codes", "what each exit code means"),
    ("stores", "where locks can live, and how far they reach"),
    ("fencing", "what a token is for"),
    ("doctor", "what each check of doctor means, and its --json"),
    ("config", "the configuration file, and what wins over what"),
];

/// Prints the text for a code or a topic, or the list of both.
pub(crate) fn explain(subject: Option<&str>) -> Result<u8, Failure> {
    let text = match subject {
        None => index(),
        Some("exit-codes") => exit_codes(),
        Some("stores") => STORES.to_owned(),
        Some("fencing") => FENCING.to_owned(),
        Some("doctor") => DOCTOR.to_owned(),
        Some("config") => format!("{CONFIG}\n{}", example()),
        Some(subject) => match Code::find(subject).and_then(|code| of_code(code).map(|text| (code, text))) {
            Some((code, (title, text))) => format!("{code}: {title}\n\n{text}\n"),
            None => {
                let topics: Vec<_> = TOPICS.iter().map(|(topic, _)| *topic).collect();
                let message = format!("there is nothing to explain under {subject:?}");
                let hint = format!("a code such as LH0031, or {}", topics.join(", "));
                return Err(Failure::usage(Code::VALUE, message).hint(hint));
            }
        },
    };
    print(&text);
    Ok(exit::OK)
}

/// The title and the text of a code.
fn of_code(code: Code) -> Option<(&'static str, &'static str)> {
    let heading = format!("# {code}: ");
    let start = CODES.find(&heading)? + heading.len();
    let section = CODES[start..].split("\n# ").next()?;
    let (title, text) = section.split_once('\n')?;
    Some((title, text.trim()))
}

fn index() -> String {
    let mut text = String::from("leasehold explain TOPIC\n\n");
    for (topic, what) in TOPICS {
        text.push_str(&format!("  {topic:12} {what}\n"));
    }
    text.push_str("\nleasehold explain CODE\n\n");
    for code in Code::ALL {
        text.push_str(&format!("  {code}       {}\n", of_code(*code).map_or("", |(title, _)| title)));
    }
    text
}

fn exit_codes() -> String {
    let mut text = String::from("The exit codes of leasehold\n\n");
    for (code, kind, sentence) in exit::ALL {
        text.push_str(&format!("  {code:>3}  {kind:12} {sentence}\n"));
    }
    text.push_str(
        "\nAny other code is the command's own; 128+n means that it ended by signal n, or that leasehold left the\n\
         line on signal n. A command that itself ends with one of these codes cannot be told apart by the code\n\
         alone. Under --json each error has its number: leasehold explain LH0012.\n",
    );
    text
}

fn example() -> &'static str {
    leasehold::config::EXAMPLE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_text_and_every_text_a_code() {
        for code in Code::ALL {
            let (title, text) = of_code(*code).unwrap_or_else(|| panic!("{code} has no text"));
            assert!(!title.is_empty() && text.len() > 80, "{code}: say more");
            assert!(index().contains(title));
        }
        let headings = CODES.lines().filter_map(|line| line.strip_prefix("# "));
        let known: Vec<_> = headings.map(|heading| Code::find(&heading[..6]).unwrap()).collect();
        assert_eq!(known, Code::ALL, "in the order of the numbers, each once");
    }

    #[test]
    fn the_table_of_exit_codes_comes_from_the_constants() {
        let text = exit_codes();
        assert!(
            exit::ALL
                .iter()
                .all(|(code, _, sentence)| text.contains(&format!("{code:>3}  ")) && text.contains(sentence))
        );
    }
}
