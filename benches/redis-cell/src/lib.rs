//! An empty library: this package exists for the Redis module that Cargo builds as its
//! dependency.
