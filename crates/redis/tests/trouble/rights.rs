//! The least rights that an ACL user needs, and fewer.

use std::time::Duration;

use leasehold_core::{
    Code, Leave, Mark, MarkKind, MarkOutcome, Note, Record, RecordId, RecordKind, Release, Store,
};

use crate::support::ways::LEAST_RIGHTS;
use crate::*;

#[tokio::test]
async fn the_least_rights_suffice_and_fewer_are_a_clear_error() {
    let server = server!();
    let rights = LEAST_RIGHTS.strip_prefix("locks on >password ").unwrap();
    let _: () = say(&server, &["ACL", "SETUSER", "admin", "on", ">pw", "~*", "&*", "+@all"]);
    let admin =
        redis::Client::open(format!("unix://{}?user=admin&pass=pw", server.socket().display())).unwrap();
    let mut admin = admin.get_connection().unwrap();
    let mut allow = |rights: &str| {
        let mut command = redis::cmd("ACL");
        command.arg("SETUSER").arg("default");
        for right in rights.split_whitespace() {
            command.arg(right);
        }
        command.exec(&mut admin).unwrap();
    };
    allow("on nopass");
    allow(rights);
    let (one, two) = (store(&server, ""), store(&server, ""));
    let (holder, waiter, reader) = (claim("rights"), claim("rights"), shared("rights:read"));
    let tokens = [granted(&one, &holder).await, granted(&one, &reader).await];
    waits(&two, &waiter).await;
    is_kept(&one, &holder, tokens[0]).await;
    is_kept(&one, &reader, tokens[1]).await;
    one.inspect(&holder.name).await.unwrap();
    assert_eq!(one.list("rights", None).await.unwrap(), [name("rights"), name("rights:read")]);
    let closed = Leave::Closed { lasting: Duration::from_millis(300), note: Note::NONE };
    assert_eq!(one.release(&holder.name, holder.id, closed).await.unwrap(), Release::Released);
    assert_eq!(end(&two, &waiter).await, Release::Withdrawn);
    let ledger = one.ledger().unwrap();
    let mark = Mark {
        kind: MarkKind::Once,
        name: name("rights"),
        key: "today".to_owned(),
        by: "me".to_owned(),
        text: String::new(),
        lasting: LONG,
        age: Duration::ZERO,
    };
    assert_eq!(ledger.mark(&mark).await.unwrap(), MarkOutcome::Made);
    assert_eq!(ledger.marks(MarkKind::Once, &mark.name).await.unwrap().len(), 1);
    assert!(ledger.unmark(MarkKind::Once, &mark.name, "today").await.unwrap());
    let (name, by, text) = (mark.name.clone(), String::new(), String::new());
    let record = Record { kind: RecordKind::Run, name, by, text, age: Duration::ZERO };
    ledger.record(&record).await.unwrap();
    assert_eq!(ledger.records(None, RecordId(0), 10).await.unwrap().len(), 1);

    // While it holds, a right is taken away: no renewal, and a word that says why.
    allow("-evalsha -eval");
    for error in [
        renew(&one, &reader, tokens[1]).await.unwrap_err(),
        two.claim(&attempt(claim("x"))).await.unwrap_err(),
    ] {
        assert_eq!((error.code(), error.is_retryable()), (Code::DENIED, false), "{error}");
        assert!(error.help().unwrap().contains("ACL"), "{error}");
    }
    allow("resetpass >other");
    let refused = store(&server, "");
    let error = refused.claim(&attempt(claim("x"))).await.unwrap_err();
    assert_eq!(error.code(), Code::DENIED, "{error}");
    assert!(error.help().unwrap().contains("password"), "{error}");
}
