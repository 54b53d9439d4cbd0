//! The parts of the drivers that an actor may use: small traits, of which the wiring hands each actor only its own.
//!
//! [`Drivers`] implements all of them; a test may implement one of them alone. An actor that only reads figures cannot mount.
//! This compiles:
//!
//! ```no_run
//! # async fn sample(figures: &dyn bridge_csi::VolumeFigures) {
//! let _ = figures.volume_figures("driver", Default::default(), false).await;
//! # }
//! ```
//!
//! and this does not:
//!
//! ```compile_fail,E0599
//! # async fn sample(figures: &dyn bridge_csi::VolumeFigures) {
//! let _ = figures.unpublish("driver", Default::default()).await;
//! # }
//! ```

use futures::future::BoxFuture;

use crate::driver::Reply;
use crate::drivers::{Candidate, Drivers, RegisterError, Registered};
use crate::in_flight::{InFlight, Volume};
use crate::rules::capabilities::Capabilities;
use crate::rules::csi_node::NodeInfo;
use crate::rules::figures::Figures;
use crate::wire::*;

/// Makes each trait, and its implementation by the methods of [`Drivers`] of the same names.
macro_rules! ports {
    ($($(#[$about:meta])* $port:ident {
        $($(#[$says:meta])* fn $method:ident($($argument:ident: $kind:ty),*) -> $answer:ty;)*
    })*) => {$(
        $(#[$about])*
        pub trait $port: Send + Sync + 'static {
            $($(#[$says])* fn $method(&self, $($argument: $kind),*) -> $answer;)*
        }

        impl $port for Drivers {
            $(fn $method(&self, $($argument: $kind),*) -> $answer {
                Drivers::$method(self, $($argument),*)
            })*
        }
    )*};
}

ports! {
    /// Which drivers there are and what they tell of the node; for the actor that registers them.
    ///
    /// # Errors
    /// Every call ends with the driver's answer, or that no answer came in time.
    DriverRegistry {
        /// Registers a driver, which has to tell of the node; see [`Drivers::register`].
        fn register(candidate: Candidate) -> BoxFuture<'static, Result<NodeInfo, RegisterError>>;
        /// Forgets the driver that was registered from this socket; false if there is none.
        fn deregister(driver: &str, socket: &str) -> bool;
        /// The registered drivers, by name.
        fn registered() -> Vec<Registered>;
        /// `NodeGetInfo`.
        fn node_info(driver: &str) -> Reply<NodeInfo>;
    }

    /// Volumes of drivers on this node; for VolumeManager.
    ///
    /// # Errors
    /// The driver's answer, or that no answer came in time; see [`CsiError::progress`](crate::CsiError::progress).
    NodeVolumes {
        /// `NodeGetCapabilities`.
        fn capabilities(driver: &str) -> Reply<Capabilities>;
        /// `NodeStageVolume`.
        fn stage(driver: &str, request: NodeStageVolumeRequest) -> Reply<()>;
        /// `NodeUnstageVolume`.
        fn unstage(driver: &str, request: NodeUnstageVolumeRequest) -> Reply<()>;
        /// `NodePublishVolume`.
        fn publish(driver: &str, request: NodePublishVolumeRequest) -> Reply<()>;
        /// `NodeUnpublishVolume`.
        fn unpublish(driver: &str, request: NodeUnpublishVolumeRequest) -> Reply<()>;
        /// `NodeExpandVolume`; the new size in bytes, 0 if it is not told.
        fn expand(driver: &str, request: NodeExpandVolumeRequest) -> Reply<i64>;
        /// The mutating calls that have not ended.
        fn in_flight() -> Vec<InFlight>;
        /// Ends when no mutating call is in flight for which one about this target, `None`: about the volume as a whole, would
        /// have to wait.
        fn settled(volume: &Volume, target: Option<&str>) -> BoxFuture<'static, ()>;
        /// Cancels the volume's calls at this target, `None`: those about the volume as a whole; returns their number.
        fn cancel(volume: &Volume, target: Option<&str>) -> usize;
    }

    /// The size and health of volumes; for the actor that measures.
    ///
    /// # Errors
    /// The driver's answer, or that no answer came in time.
    VolumeFigures {
        /// `NodeGetVolumeStats`; see [`Drivers::volume_figures`].
        fn volume_figures(driver: &str, request: NodeGetVolumeStatsRequest, with_health: bool) -> Reply<Figures>;
    }
}
