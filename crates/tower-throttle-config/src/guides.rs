//! The samples of the guides, compiled and run as tests.

#[doc = include_str!("../README.md")]
mod readme {}
#[doc = include_str!("../../../docs/configuration.md")]
mod configuration {}
#[doc = include_str!("../../../docs/kubernetes.md")]
mod kubernetes {}
#[doc = include_str!("../../../docs/reload.md")]
mod reload {}
