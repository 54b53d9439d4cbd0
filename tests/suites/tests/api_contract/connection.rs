//! Real connections: identities that change, servers that go and come back, and what is said when nothing fits.

use crate::subject::ControlPlane;

pub const ALL: &[(&str, fn(&ControlPlane))] = &[];
