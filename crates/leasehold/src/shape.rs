//! What a lease takes, and under which token: the two facts of a hold that may change while it holds.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use leasehold_core::{Share, Token};
use tokio::sync;

/// What a lease takes now, and under which token.
#[derive(Debug)]
pub(crate) struct Shape {
    /// As it was acquired.
    born: (Share, Token),
    share: Mutex<Share>,
    token: AtomicU64,
    /// Held by whoever changes it: one change at a time, in the order in which they were asked for.
    pub(crate) turn: Arc<sync::Mutex<()>>,
    /// Whether the store may know of a share other than this one.
    pub(crate) unsettled: AtomicBool,
    /// How many wait for their turn, so that whoever only settles what was left makes room.
    pub(crate) waiting: sync::watch::Sender<u32>,
}

impl Shape {
    pub(crate) fn new(share: Share, token: Token) -> Self {
        Self {
            born: (share, token),
            share: Mutex::new(share),
            token: AtomicU64::new(token.get()),
            turn: Arc::default(),
            unsettled: AtomicBool::new(false),
            waiting: sync::watch::Sender::new(0),
        }
    }

    pub(crate) fn token(&self) -> Token {
        Token::new(self.token.load(Ordering::SeqCst)).unwrap_or(self.born.1)
    }

    pub(crate) fn share(&self) -> Share {
        *self.share.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It takes this much from now on, and has a new token if it takes more.
    pub(crate) fn set(&self, share: Share, token: Option<Token>) {
        *self.share.lock().unwrap_or_else(PoisonError::into_inner) = share;
        if let Some(token) = token.filter(|_| !leasehold_core::fault!("upgrade_keeps_token")) {
            self.token.store(token.get(), Ordering::SeqCst);
        }
    }

    /// One step down: a writer that was taken as an upgradeable reader is one again, any other becomes a plain
    /// reader. `None` for what is no reader and no writer.
    pub(crate) fn less(&self) -> Option<Share> {
        match self.share() {
            Share::EXCLUSIVE if self.born.0 == Share::UPGRADEABLE => Some(Share::UPGRADEABLE),
            Share::EXCLUSIVE | Share::UPGRADEABLE | Share::SHARED => Some(Share::SHARED),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_down_leads_back_to_where_it_came_from() {
        let token = |number| Token::new(number).unwrap();
        let shape = Shape::new(Share::UPGRADEABLE, token(7));
        shape.set(Share::EXCLUSIVE, Some(token(9)));
        assert_eq!((shape.less(), shape.token()), (Some(Share::UPGRADEABLE), token(9)));
        shape.set(Share::UPGRADEABLE, None);
        assert_eq!((shape.less(), shape.token()), (Some(Share::SHARED), token(9)));
        assert_eq!(Shape::new(Share::EXCLUSIVE, token(7)).less(), Some(Share::SHARED));
        assert_eq!(Shape::new(Share::permits(2, 5).unwrap(), token(7)).less(), None);
    }
}
