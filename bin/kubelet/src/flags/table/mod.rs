//! The rows of the flags, grouped as the configuration is.

mod cadvisor;
mod cgroups;
mod images;
mod node;
mod pods;
mod process;
mod server;

use super::FlagRow;

/// The deprecation note of flags that belong into the configuration file.
pub(super) const CONFIG_FILE_FLAG: &str = "This parameter should be set via the config file specified by the \
Kubelet's --config flag. See https://kubernetes.io/docs/tasks/administer-cluster/kubelet-config-file/ for more \
information.";
/// The deprecation note of cAdvisor's flags.
pub(super) const CADVISOR_FLAG: &str = "This is a cadvisor flag that was mistakenly registered with the Kubelet. Due \
to legacy concerns, it will follow the standard CLI deprecation timeline before being removed.";
/// The deprecation note of flags that eviction has replaced.
pub(super) const EVICTION_FLAG: &str =
    "Use --eviction-hard or --eviction-soft instead. Will be removed in a future version.";

/// Every table.
pub(super) const TABLES: [&[FlagRow]; 7] =
    [process::ROWS, server::ROWS, images::ROWS, pods::ROWS, node::ROWS, cgroups::ROWS, cadvisor::ROWS];

/// A flag that sets a field of the configuration: name, type, field of `KubeletConfiguration`, name in the file,
/// purpose.
macro_rules! config_flag {
    ($name:literal, $kind:ident, $group:ident $(. $field:ident)+, $json:literal, $usage:literal) => {
        config_flag!(
            $name, None, $kind, $group $(. $field)+, $json, Some($crate::flags::table::CONFIG_FILE_FLAG), $usage
        )
    };
    (
        $name:literal, $shorthand:expr, $kind:ident, $group:ident $(. $field:ident)+, $json:literal,
        $deprecated:expr, $usage:literal
    ) => {
        $crate::flags::FlagRow {
            name: $name,
            shorthand: $shorthand,
            type_name: <$kind as $crate::flags::kind::FlagKind>::NAME,
            without_value: <$kind as $crate::flags::kind::FlagKind>::WITHOUT_VALUE,
            deprecated: $deprecated,
            target: $crate::flags::Target::Config($json),
            usage: $usage,
            set: |settings, text, first| {
                <$kind as $crate::flags::kind::FlagKind>::set(
                    &mut settings.config.$group $(. $field)+,
                    text,
                    first,
                )
            },
            show: |settings| {
                <$kind as $crate::flags::kind::FlagKind>::show(&settings.config.$group $(. $field)+)
            },
        }
    };
}

/// A flag without a field in the configuration file: name, type, field of `KubeletFlags`, effect, purpose.
macro_rules! process_flag {
    ($name:literal, $kind:ident, $field:ident, $effect:ident, $usage:literal) => {
        process_flag!($name, None, $kind, $field, $effect, None, $usage)
    };
    (
        $name:literal, $shorthand:expr, $kind:ident, $field:ident, $effect:ident, $deprecated:expr,
        $usage:literal
    ) => {
        $crate::flags::FlagRow {
            name: $name,
            shorthand: $shorthand,
            type_name: <$kind as $crate::flags::kind::FlagKind>::NAME,
            without_value: <$kind as $crate::flags::kind::FlagKind>::WITHOUT_VALUE,
            deprecated: $deprecated,
            target: $crate::flags::Target::Process($crate::config::Effect::$effect),
            usage: $usage,
            set: |settings, text, first| {
                <$kind as $crate::flags::kind::FlagKind>::set(&mut settings.flags.$field, text, first)
            },
            show: |settings| <$kind as $crate::flags::kind::FlagKind>::show(&settings.flags.$field),
        }
    };
}

/// A flag of cAdvisor; its value is checked and dropped: name, type, default, purpose.
macro_rules! cadvisor_flag {
    ($name:literal, $kind:ident, $default:literal, $usage:literal) => {
        $crate::flags::FlagRow {
            name: $name,
            shorthand: None,
            type_name: <$kind as $crate::flags::kind::FlagKind>::NAME,
            without_value: <$kind as $crate::flags::kind::FlagKind>::WITHOUT_VALUE,
            deprecated: Some($crate::flags::table::CADVISOR_FLAG),
            target: $crate::flags::Target::Process($crate::config::Effect::NotYet),
            usage: $usage,
            set: |_settings, text, first| {
                let mut dropped = Default::default();
                <$kind as $crate::flags::kind::FlagKind>::set(&mut dropped, text, first)
            },
            show: |_settings| $default.to_owned(),
        }
    };
}

use {cadvisor_flag, config_flag, process_flag};
