//! The layer as a Tower service: readiness, errors, bodies, cancellation, and
//! which policies a request meets.

mod bodies;
mod buckets;
mod cancelling;
mod composing;
mod policies;
mod readiness;
