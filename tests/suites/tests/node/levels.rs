//! A single fact is told until it is known: its message may be lost after the mailbox has taken it, or its receiver may crash
//! over it.

use std::time::Duration;

use bridge_kube::fake::FakeApi;
use k8s_openapi::api::core::v1::Node;
use messages::supervision::Fault;
use supervision::Policy;
use testkit::node::{FakeNode, World, settings};
use testkit::{Sandbox, sandbox};

use crate::cluster::{clustered, until, within};
use crate::desired::inject;

const NS: Option<&str> = Some("default");
