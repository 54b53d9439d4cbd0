//! The messages that CertificateManager receives.

use crate::facts::NodeAddressesObserved;
use crate::receives;

receives!("CertificateManager": NodeAddressesObserved);
