//! How a blocking type is made from its async twin: one line for each method that says the same.

/// Methods that are their async twins'. What each line is:
///
/// | word | takes | gives |
/// |---|---|---|
/// | `option` | the description | it, changed |
/// | `look`, `call` | `&self` | what the twin gives; of a `look` nobody may forget it |
/// | `describe` | `&self` | the blocking twin of what the twin gives |
/// | `wait`, `change`, `end` | `&self`, `&mut self`, `self` | what comes of the future, waited for in this thread |
/// | `lease`, `maybe` | `&self` | the blocking twin of what comes of it, and perhaps of nothing |
/// | `run .. by ..` | `&self` and work | what the work gives under what that verb acquires |
macro_rules! mirror {
    ($twin:literal) => {};
    ($twin:literal option $name:ident($($arg:ident: $type:ty),*); $($rest:tt)*) => {
        #[doc = mirror!(@doc $twin, $name)]
        pub fn $name(self, $($arg: $type),*) -> Self {
            Self(self.0.$name($($arg),*))
        }
        mirror!($twin $($rest)*);
    };
    ($twin:literal look $name:ident() -> $gives:ty; $($rest:tt)*) => {
        #[doc = mirror!(@doc $twin, $name)]
        #[must_use]
        pub fn $name(&self) -> $gives {
            self.0.$name()
        }
        mirror!($twin $($rest)*);
    };
    ($twin:literal call $name:ident($($arg:ident: $type:ty),*) -> $gives:ty; $($rest:tt)*) => {
        #[doc = mirror!(@doc $twin, $name)]
        pub fn $name(&self, $($arg: $type),*) -> $gives {
            self.0.$name($($arg),*)
        }
        mirror!($twin $($rest)*);
    };
    ($twin:literal describe $name:ident($($arg:ident: $type:ty),*) -> $gives:ty; $($rest:tt)*) => {
        #[doc = mirror!(@doc $twin, $name)]
        pub fn $name(&self, $($arg: $type),*) -> $gives {
            self.0.$name($($arg),*).into()
        }
        mirror!($twin $($rest)*);
    };
    ($twin:literal wait $name:ident($($arg:ident: $type:ty),*) -> $gives:ty; $($rest:tt)*) => {
        #[doc = mirror!(@doc $twin, $name)]
        pub fn $name(&self, $($arg: $type),*) -> $gives {
            crate::blocking::wait(self.0.$name($($arg),*))
        }
        mirror!($twin $($rest)*);
    };
    ($twin:literal change $name:ident($($arg:ident: $type:ty),*) -> $gives:ty; $($rest:tt)*) => {
        #[doc = mirror!(@doc $twin, $name)]
        pub fn $name(&mut self, $($arg: $type),*) -> $gives {
            crate::blocking::wait(self.0.$name($($arg),*))
        }
        mirror!($twin $($rest)*);
    };
    ($twin:literal end $name:ident($($arg:ident: $type:ty),*) -> $gives:ty; $($rest:tt)*) => {
        #[doc = mirror!(@doc $twin, $name)]
        pub fn $name(self, $($arg: $type),*) -> $gives {
            crate::blocking::wait(self.0.$name($($arg),*))
        }
        mirror!($twin $($rest)*);
    };
    ($twin:literal lease $name:ident($($arg:ident: $type:ty),*) -> $gives:ty; $($rest:tt)*) => {
        #[doc = mirror!(@doc $twin, $name)]
        ///
        /// # Errors
        ///
        /// As there.
        pub fn $name(&self, $($arg: $type),*) -> leasehold_core::Result<$gives> {
            crate::blocking::wait(self.0.$name($($arg),*)).map(<$gives>::from)
        }
        mirror!($twin $($rest)*);
    };
    ($twin:literal maybe $name:ident() -> $gives:ty; $($rest:tt)*) => {
        #[doc = mirror!(@doc $twin, $name)]
        ///
        /// # Errors
        ///
        /// As there.
        pub fn $name(&self) -> leasehold_core::Result<Option<$gives>> {
            Ok(crate::blocking::wait(self.0.$name())?.map(<$gives>::from))
        }
        mirror!($twin $($rest)*);
    };
    ($twin:literal run $name:ident() by attempt() -> $proof:ty; $($rest:tt)*) => {
        #[doc = mirror!(@doc $twin, $name)]
        /// Work that has begun goes on to its end, as in [`Lock::run`](crate::blocking::Lock::run) here.
        ///
        /// # Errors
        ///
        /// As there; [`Error::Lost`](crate::Error::Lost) drops what the work returned.
        pub fn $name<T>(
            &self,
            work: impl FnOnce(&$proof) -> T,
        ) -> leasehold_core::Result<crate::lock::Outcome<T>> {
            crate::blocking::run::try_under(self.attempt(), work)
        }
        mirror!($twin $($rest)*);
    };
    ($twin:literal run $name:ident($($arg:ident: $type:ty)?) by $verb:ident() -> $proof:ty; $($rest:tt)*) => {
        #[doc = mirror!(@doc $twin, $name)]
        /// Work that has begun goes on to its end, as in [`Lock::run`](crate::blocking::Lock::run) here.
        ///
        /// # Errors
        ///
        /// As there; [`Error::Lost`](crate::Error::Lost) drops what the work returned.
        pub fn $name<T>(
            &self,
            $($arg: $type,)?
            work: impl FnOnce(&$proof) -> T,
        ) -> leasehold_core::Result<T> {
            crate::blocking::run::run_under(self.$verb($($arg)?)?, work)
        }
        mirror!($twin $($rest)*);
    };
    (@doc $twin:literal, $name:ident) => {
        concat!("As [`", $twin, "::", stringify!($name), "`](crate::", $twin, "::", stringify!($name), ").")
    };
}

/// The way from the async twin and back to it.
macro_rules! both_ways {
    ($type:ident) => {
        impl $type {
            /// The same for async callers.
            pub fn into_async(self) -> crate::$type {
                self.0
            }
        }

        impl From<crate::$type> for $type {
            fn from(twin: crate::$type) -> Self {
                Self(twin)
            }
        }
    };
}

pub(super) use {both_ways, mirror};
