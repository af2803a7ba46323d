//! The admin page over HTTP.

mod access;
mod api;
mod page;
