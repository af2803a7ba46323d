//! Nothing: what is wanted is the module that Cargo builds as a dependency.
