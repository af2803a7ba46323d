//! Quotas as text: what is read is what the builders make, and what is written is read again.

mod canonical;
mod forms;
mod mistakes;
mod properties;
