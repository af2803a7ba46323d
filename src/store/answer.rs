//! What a store gives.

use std::{fmt, pin::Pin};

use crate::StoreError;

/// What a store gives: the result, or a future of it.
pub enum Answer<T> {
    /// Here it is.
    Now(Result<T, StoreError>),
    /// It is on its way. Before it is first polled, nothing may be done: a
    /// caller who leaves by then has taken nothing.
    Later(StoreFuture<T>),
}

/// The future of a store's answer.
pub type StoreFuture<T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>;

impl<T> Answer<T> {
    /// Waits, where there is something to wait for.
    pub(crate) async fn wait(self) -> Result<T, StoreError> {
        match self {
            Self::Now(result) => result,
            Self::Later(future) => future.await,
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Answer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Now(result) => f.debug_tuple("Now").field(result).finish(),
            Self::Later(_) => f.write_str("Later"),
        }
    }
}
