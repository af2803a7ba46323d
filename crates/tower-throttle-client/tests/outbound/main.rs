//! The layer for clients, in virtual time: with partners that enforce, refuse, lie and say nothing.

mod calls;
mod dialects;
mod fleet;
mod partner;
mod readiness;
mod recorded;
mod redirects;
mod retries;
