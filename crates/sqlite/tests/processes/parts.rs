//! What the other processes do.

use std::time::Duration;

use leasehold_core::{Aftermath, Claim, Clock, Leave, Release, Share, Store, Turn};

use crate::stage::{acquire, claim, connection, listen, open, part, say};

#[tokio::test]
async fn player() {
    let Some((part, words)) = part() else { return };
    let path = words[0].as_ref();
    match part.as_str() {
        // Holds one lock until told otherwise.
        "hold" => {
            let (store, mine) = (open(path), claim("a", Turn::Any));
            let grant = acquire(&store, &mine).await;
            say(&grant.token.to_string());
            listen();
            assert_eq!(store.release(&mine.name, mine.id, Leave::Open).await.unwrap(), Release::Released);
            say("released");
        }
        // Reads until told otherwise, and lives until it is told again.
        "read" => {
            let (store, mine) = (open(path), Claim { share: Share::SHARED, ..claim("a", Turn::Any) });
            acquire(&store, &mine).await;
            say("reading");
            listen();
            store.release(&mine.name, mine.id, Leave::Open).await.unwrap();
            // It lives on: its end would be news of its own.
            listen();
        }
        // Reads and wants to write, until told otherwise.
        "wish" => {
            let store = open(path);
            let mine = Claim { share: Share::UPGRADEABLE, ..claim("a", Turn::Any) };
            acquire(&store, &mine).await;
            let wish = Claim { share: Share::EXCLUSIVE, reshape: 1, ..mine.clone() };
            store.claim(&wish).await.unwrap();
            say("wanting");
            listen();
            store.claim(&Claim { reshape: 2, ..mine }).await.unwrap();
            listen();
        }
        // Holds a lease that leaves its name shut if it ends uncleanly: for so many milliseconds.
        "leaves" => {
            let [delay, at_least] = [1, 2].map(|at| Duration::from_millis(words[at].parse().unwrap()));
            let aftermath = Aftermath { delay, at_least };
            let (store, mine) = (open(path), Claim { aftermath, ..claim("a", Turn::Any) });
            acquire(&store, &mine).await;
            say("held");
            listen();
        }
        // Claims several names in one step and releases them, without end.
        "all" => {
            let store = open(path);
            say("working");
            loop {
                let claims: Vec<Claim> = words[1].split(' ').map(|text| claim(text, Turn::Now)).collect();
                store.claim_all(&claims).await.unwrap();
                for claim in &claims {
                    store.release(&claim.name, claim.id, Leave::Open).await.unwrap();
                }
            }
        }
        // Takes a lease for others, and ends.
        "detach" => {
            let (store, mine) = (open(path).detached(), claim("a", Turn::Any));
            acquire(&store, &mine).await;
            say(&format!("{:x}", u128::from_be_bytes(mine.id.to_bytes())));
        }
        // Takes turns, and tells when it gave its turn away.
        "ping" => {
            let store = open(path);
            loop {
                let mine = claim("a", Turn::Fifo);
                acquire(&store, &mine).await;
                say("held");
                if listen().is_empty() {
                    return;
                }
                let now = Clock::system().now().as_nanos();
                store.release(&mine.name, mine.id, Leave::Open).await.unwrap();
                say(&now.to_string());
            }
        }
        // Claims and releases without end.
        "work" => {
            let store = open(path);
            say("working");
            loop {
                let mine = claim("a", Turn::Any);
                acquire(&store, &mine).await;
                store.release(&mine.name, mine.id, Leave::Open).await.unwrap();
            }
        }
        // Opens a file that many others open at this moment, and holds a lock once.
        "race" => {
            say("ready");
            listen();
            let (store, mine) = (open(path), claim("a", Turn::Any));
            let grant = acquire(&store, &mine).await;
            store.release(&mine.name, mine.id, Leave::Open).await.unwrap();
            store.close().await.unwrap();
            say(&format!("{} {}", store.created(), grant.token));
            listen();
        }
        // Another program that keeps a transaction open.
        "hog" => {
            let hog = connection(path);
            hog.execute_batch("BEGIN IMMEDIATE").unwrap();
            say("writing");
            listen();
            std::thread::sleep(Duration::from_secs(3));
            hog.execute_batch("COMMIT").unwrap();
            let again = listen();
            say("ended");
            assert_eq!(again, "for ever");
            hog.execute_batch("BEGIN IMMEDIATE").unwrap();
            say("writing");
            listen();
        }
        // Another program that changes the file.
        "sql" => {
            connection(path).execute_batch(&words[1].replace('\t', "\n")).unwrap();
            say("done");
        }
        other => panic!("no part {other}"),
    }
    // Whoever started us may have gone: the test program would fail to tell it that all went well.
    std::process::exit(0);
}
