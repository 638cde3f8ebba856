//! What the other processes do.

use leasehold_core::{Clock, Leave, Release, Store, Turn};

use crate::stage::{acquire, claim, listen, open, part, say};

#[tokio::test]
async fn player() {
    let Some((part, words)) = part() else { return };
    let store = open(words[0].as_ref());
    let mine = claim("a", Turn::Any);
    match part.as_str() {
        "hold" => {
            let grant = acquire(&store, &mine).await;
            say(&grant.token.to_string());
            listen();
            assert_eq!(store.release(&mine.name, mine.id, Leave::Open).await.unwrap(), Release::Released);
            say("released");
            listen();
        }
        "ping" => loop {
            let mine = claim("a", Turn::Fifo);
            acquire(&store, &mine).await;
            say("held");
            if listen().is_empty() {
                return;
            }
            let now = Clock::system().now().as_nanos();
            store.release(&mine.name, mine.id, Leave::Open).await.unwrap();
            say(&now.to_string());
        },
        other => panic!("no part {other}"),
    }
}
