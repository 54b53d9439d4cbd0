//! The messages that LogManager receives.

use crate::facts::PodObserved;
use crate::receives;

receives!("LogManager": PodObserved);
