//! What a store returns.

use std::{fmt, pin::Pin};

use crate::StoreError;
#[cfg(feature = "redis")]
use crate::util::detach::run_to_completion;

/// The answer of a store: the result, or a future of it.
pub enum Answer<T> {
    /// The result is known.
    Now(Result<T, StoreError>),
    /// The future returns the result. It does nothing before it is first polled, so a caller
    /// that drops it earlier has taken nothing.
    Later(StoreFuture<T>),
}

/// The future of a store's answer.
pub type StoreFuture<T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>;

impl<T> Answer<T> {
    /// Waits for the result, if it is not known yet.
    pub(crate) async fn wait(self) -> Result<T, StoreError> {
        match self {
            Self::Now(result) => result,
            Self::Later(future) => future.await,
        }
    }
}

impl<T: Send + 'static> Answer<T> {
    /// Changes the result once it is known.
    pub(super) fn map<U: 'static>(
        self,
        then: impl FnOnce(Result<T, StoreError>) -> Result<U, StoreError> + Send + 'static,
    ) -> Answer<U> {
        match self {
            Self::Now(result) => Answer::Now(then(result)),
            Self::Later(future) => Answer::Later(Box::pin(async move { then(future.await) })),
        }
    }

    /// Returns an answer that runs to its end once it has been polled, although the caller
    /// may drop it.
    #[cfg(feature = "redis")]
    pub(super) fn run_to_completion(self) -> Self {
        match self {
            Self::Later(answer) => Self::Later(Box::pin(run_to_completion(answer))),
            now => now,
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
