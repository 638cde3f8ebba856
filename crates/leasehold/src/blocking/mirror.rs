//! How a blocking type is made from its async twin: one line for each method that says the same.

/// Methods that are their async twins': an `option` takes and gives the description, a `look` only looks, a `wait`
/// waits for the future in this thread.
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
    ($twin:literal wait $name:ident($($arg:ident: $type:ty),*) -> $gives:ty; $($rest:tt)*) => {
        #[doc = mirror!(@doc $twin, $name)]
        pub fn $name(&self, $($arg: $type),*) -> $gives {
            crate::blocking::wait(self.0.$name($($arg),*))
        }
        mirror!($twin $($rest)*);
    };
    (@doc $twin:literal, $name:ident) => {
        concat!("As [`", $twin, "::", stringify!($name), "`](crate::", $twin, "::", stringify!($name), ").")
    };
}

pub(super) use mirror;
