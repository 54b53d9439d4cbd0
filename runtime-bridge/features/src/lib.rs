//! Nothing: what counts is the manifest.
