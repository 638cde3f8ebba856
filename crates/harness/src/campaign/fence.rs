//! What is worked on under the locks: one resource that checks tokens, and one that trusts whoever comes.

use std::sync::{Mutex, MutexGuard, PoisonError};

use leasehold::Token;

/// A set for each name, twice. Whoever works on it reads it, and later writes back what he read with one more in it:
/// the write of whoever came between is lost by that.
#[derive(Debug)]
pub(super) struct Fence(Mutex<Vec<Sets>>);

#[derive(Debug, Clone, Default)]
struct Sets {
    /// The highest token that was shown, by whoever read or wrote.
    highest: Option<Token>,
    fenced: Vec<u64>,
    open: Vec<u64>,
    /// What was written to each, as the writers were told.
    accepted: Vec<(Token, u64)>,
    written: Vec<u64>,
    refused: u64,
}

/// What was read: it goes back with the write.
#[derive(Debug)]
pub(super) struct Read {
    /// `None` for whoever came with a token that is too low.
    fenced: Option<Vec<u64>>,
    open: Vec<u64>,
}

/// What the books say in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Books {
    /// Writes that the resource accepted which checks tokens.
    pub(super) accepted: u64,
    /// .. and refused, reads included.
    pub(super) refused: u64,
    /// Accepted writes that are not there in the end, or were accepted after one with a higher token.
    pub(super) lost: u64,
    /// Writes to the resource that trusts whoever comes, which are not there in the end.
    pub(super) lost_open: u64,
}

impl Fence {
    pub(super) fn new(names: usize) -> Self {
        Self(Mutex::new(vec![Sets::default(); names]))
    }

    fn sets(&self) -> MutexGuard<'_, Vec<Sets>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads. The token counts from here on: a read that did not show it could be followed by a write of the holder
    /// before, which nobody would refuse.
    pub(super) fn read(&self, name: usize, token: Token) -> Read {
        let sets = &mut self.sets()[name];
        let fenced = sets.shows(token).then(|| sets.fenced.clone());
        Read { fenced, open: sets.open.clone() }
    }

    /// Writes back what was read, with one more.
    pub(super) fn write(&self, name: usize, token: Token, read: Read, new: u64) {
        let sets = &mut self.sets()[name];
        let Read { fenced, mut open } = read;
        open.push(new);
        sets.open = open;
        sets.written.push(new);
        if let Some(mut fenced) = fenced.filter(|_| sets.shows(token)) {
            fenced.push(new);
            sets.fenced = fenced;
            sets.accepted.push((token, new));
        }
    }

    pub(super) fn books(&self) -> Books {
        let mut books = Books::default();
        for sets in self.sets().iter() {
            let Sets { highest: _, fenced, open, accepted, written, refused } = sets;
            let missing = |of: &[u64], one: &u64| !of.contains(one);
            books.accepted += accepted.len() as u64;
            books.refused += refused;
            books.lost += accepted.iter().filter(|(_, one)| missing(fenced, one)).count() as u64;
            books.lost += accepted.windows(2).filter(|two| two[0].0 > two[1].0).count() as u64;
            books.lost_open += written.iter().filter(|one| missing(open, one)).count() as u64;
        }
        books
    }
}

impl Sets {
    fn shows(&mut self, token: Token) -> bool {
        let fresh = self.highest.is_none_or(|highest| token >= highest);
        if fresh {
            self.highest = Some(token);
        } else {
            self.refused += 1;
        }
        fresh
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(number: u64) -> Token {
        Token::new(number).unwrap()
    }

    #[test]
    fn a_holder_of_before_loses_nothing_where_tokens_are_checked() {
        let fence = Fence::new(1);
        let old = fence.read(0, token(1));
        let new = fence.read(0, token(2));
        fence.write(0, token(2), new, 20);
        fence.write(0, token(1), old, 10);
        assert_eq!(fence.books(), Books { accepted: 1, refused: 1, lost: 0, lost_open: 1 });
    }

    #[test]
    fn two_holders_with_one_token_lose_a_write_and_it_is_seen() {
        let fence = Fence::new(1);
        let (one, two) = (fence.read(0, token(1)), fence.read(0, token(1)));
        fence.write(0, token(1), one, 10);
        fence.write(0, token(1), two, 20);
        assert_eq!(fence.books(), Books { accepted: 2, refused: 0, lost: 1, lost_open: 1 });
    }

    #[test]
    fn one_after_the_other_nothing_is_lost() {
        let fence = Fence::new(2);
        for number in 1..=4 {
            let name = usize::try_from(number % 2).unwrap();
            let read = fence.read(name, token(number));
            fence.write(name, token(number), read, number);
        }
        assert_eq!(fence.books(), Books { accepted: 4, refused: 0, lost: 0, lost_open: 0 });
    }
}
