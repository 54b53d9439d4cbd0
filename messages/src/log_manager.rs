//! What LogManager receives.

use crate::facts::PodObserved;
use crate::receives;

receives!("LogManager": PodObserved);
