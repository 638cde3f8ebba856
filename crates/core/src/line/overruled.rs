//! Why a claim is not judged at all, and what its owner is told.

use crate::{Claim, Code, ConfigError, Error, LockName, Op, Share, StoreError, StoreErrorKind};

/// Why a claim was not even judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overruled {
    /// It came after its time: it was given up long ago.
    Late,
    /// Its owner has changed its share since this was stated.
    Outdated,
    /// Somebody else thinks that there are a different number of permits.
    Disagrees {
        /// What the other claims.
        theirs: Share,
    },
    /// It holds, and wants more beside others of its kind: two of them would wait for each other.
    CannotGrow {
        /// What it holds.
        held: Share,
    },
    /// It takes part of another whole than it says: a mutex does not become one of three permits.
    OtherKind {
        /// What it holds.
        held: Share,
    },
    /// What waits, or takes a lease over, cannot change its share by the way.
    OtherShare {
        /// What it stands there with.
        stands: Share,
    },
    /// Another claim of the same step is for this name too.
    NamedTwice,
    /// The tokens are used up.
    NoTokenLeft,
}

impl Overruled {
    /// The error for the claimant.
    #[must_use]
    pub fn into_error(self, store: &str, claim: &Claim) -> Error {
        let Claim { name, share: mine, .. } = claim;
        let error = |kind, message: &str| StoreError::new(kind, Op::Claim, store).about(name).saying(message);
        let wrong = |message: String, help: &str| Error::from(ConfigError::new(message).help(help));
        match self {
            Self::Late => error(StoreErrorKind::Unavailable, "the claim came too late to be judged").into(),
            Self::Outdated => {
                error(StoreErrorKind::Unavailable, "its share was changed since this was stated").into()
            }
            Self::Disagrees { theirs } => ConfigError::new(format!(
                "{name}: {mine} permits here, {theirs} elsewhere: one name has one number of permits"
            ))
            .code(Code::DISAGREES)
            .help("give every user of the name the same number, or wait until the others have ended")
            .into(),
            Self::CannotGrow { held } => wrong(
                format!(
                    "{name}: a lease that is {held} cannot become {mine}: two such would wait for each other"
                ),
                "take it upgradeable, or give it back and ask anew",
            ),
            Self::OtherKind { held } => wrong(
                format!(
                    "{name}: a lease that is {held} cannot become {mine}: they are not parts of one whole"
                ),
                "give it back and ask anew",
            ),
            Self::OtherShare { stands } => wrong(
                format!("{name}: the claim stands there as {stands}, and cannot become {mine}"),
                "state the share that it stands there with; more or less can be asked for once it holds",
            ),
            Self::NamedTwice => named_twice(name).into(),
            Self::NoTokenLeft => {
                error(StoreErrorKind::Unexpected, "no fencing token is left below 2^53").into()
            }
        }
    }
}

/// What somebody is told who wants a name twice in one step: he would wait for himself.
pub(crate) fn named_twice(name: &LockName) -> ConfigError {
    ConfigError::new(format!("{name}: it is claimed twice in one step"))
        .help("claim each name once; several shares of one name are one larger share")
}
