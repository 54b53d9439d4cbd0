//! Groups of configuration fields, with one row per field.
//!
//! A `section!` names each field once: its name in the file, its Rust name and type, when the default applies, the
//! default, and its effect in this program. Decoding, defaulting, encoding, `Default` and the list of effects are all
//! generated from that row, so they cannot disagree.

use serde_json::{Map, Value as Json};

use super::effects::Effect;
use super::error::FieldError;

/// When a field's default applies, and when the field is left out of the JSON, as the Go type decides upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A Go value with `omitempty`: zero means unset, so zero takes the default and is not printed.
    Value,
    /// A Go value without `omitempty`: zero takes the default, and the field is always printed.
    Always,
    /// A Go pointer: only an absent field takes the default, and the field is always printed.
    Pointer,
    /// A Go slice with a default: only an absent one takes it; an empty one is not printed.
    List,
}

impl Kind {
    /// The value after defaulting.
    pub fn settle<T: FieldValue>(self, decoded: Option<T>, default: impl FnOnce() -> T) -> T {
        match (self, decoded) {
            (Kind::Pointer | Kind::List, Some(value)) => value,
            (Kind::Value | Kind::Always, Some(value)) if !value.is_zero() => value,
            _ => default(),
        }
    }

    /// Whether a value of this kind appears in the JSON.
    pub fn printed<T: FieldValue>(self, value: &T) -> bool {
        match self {
            Kind::Always | Kind::Pointer => true,
            Kind::Value | Kind::List => !value.omitted(),
        }
    }
}

/// A field's name and effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldRow {
    /// The field's name in the configuration file.
    pub name: &'static str,
    /// The field's effect in this program.
    pub effect: Effect,
}

/// A type of configuration field.
pub trait FieldValue: Sized {
    /// Decodes `json`, found at `path`. A wrong type or an unknown nested field is added to `errors`, one error
    /// each; the value is then `None`.
    fn decode(json: Json, path: &str, errors: &mut Vec<FieldError>) -> Option<Self>;

    /// The JSON that `/configz` shows.
    fn encode(&self) -> Json;

    /// Go's zero value of this type.
    fn is_zero(&self) -> bool;

    /// Whether `omitempty` leaves this value out: Go never omits a struct, even a zero one.
    fn omitted(&self) -> bool {
        self.is_zero()
    }
}

/// A group of fields that share one JSON object with other groups.
pub trait Section: Sized {
    /// The section's rows, in upstream's order.
    const ROWS: &'static [FieldRow];

    /// Takes this section's fields out of `object`; the remaining fields belong to other sections.
    fn take(object: &mut Map<String, Json>, path: &str, errors: &mut Vec<FieldError>) -> Self;

    /// Adds this section's fields to `object`.
    fn put(&self, object: &mut Map<String, Json>);
}

/// `parent.child`, or `child` at the root.
pub fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Takes one field out of `object`; `null` counts as absent, as it does in Go.
pub fn take_field<T: FieldValue>(
    object: &mut Map<String, Json>,
    name: &str,
    path: &str,
    errors: &mut Vec<FieldError>,
) -> Option<T> {
    match object.remove(name)? {
        Json::Null => None,
        json => T::decode(json, &join(path, name), errors),
    }
}

/// Reports every field that no section has taken.
pub fn refuse_leftovers(object: Map<String, Json>, path: &str, errors: &mut Vec<FieldError>) {
    for (name, json) in object {
        errors.push(FieldError::unknown(&join(path, &name), &json));
    }
}

/// Decodes a whole object as one section; unknown fields are errors.
pub fn decode_object<S: Section>(json: Json, path: &str, errors: &mut Vec<FieldError>) -> Option<S> {
    match json {
        Json::Object(mut object) => {
            let section = S::take(&mut object, path, errors);
            refuse_leftovers(object, path, errors);
            Some(section)
        }
        other => {
            errors.push(FieldError::wrong_type(path, &other, "an object"));
            None
        }
    }
}

/// Encodes one section as a whole object.
pub fn encode_object<S: Section>(section: &S) -> Json {
    let mut object = Map::new();
    section.put(&mut object);
    Json::Object(object)
}

/// Declares a section; the module's header describes the rows.
macro_rules! section {
    (
        $(#[$struct_meta:meta])*
        pub struct $section:ident {
            $(
                $(#[$meta:meta])*
                $name:literal $field:ident: $type:ty = $kind:ident($default:expr), $effect:ident;
            )*
        }
    ) => {
        $(#[$struct_meta])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $section {
            $( $(#[$meta])* pub $field: $type, )*
        }

        impl Default for $section {
            fn default() -> Self {
                Self { $( $field: $default, )* }
            }
        }

        impl $crate::config::section::Section for $section {
            const ROWS: &'static [$crate::config::section::FieldRow] = &[
                $( $crate::config::section::FieldRow {
                    name: $name,
                    effect: $crate::config::effects::Effect::$effect,
                }, )*
            ];

            fn take(
                object: &mut serde_json::Map<String, serde_json::Value>,
                path: &str,
                errors: &mut Vec<$crate::config::error::FieldError>,
            ) -> Self {
                Self {
                    $( $field: $crate::config::section::Kind::$kind.settle(
                        $crate::config::section::take_field::<$type>(object, $name, path, errors),
                        || $default,
                    ), )*
                }
            }

            fn put(&self, object: &mut serde_json::Map<String, serde_json::Value>) {
                $( if $crate::config::section::Kind::$kind.printed(&self.$field) {
                    object.insert(
                        $name.to_owned(),
                        $crate::config::section::FieldValue::encode(&self.$field),
                    );
                } )*
            }
        }

        impl $crate::config::section::FieldValue for $section {
            fn decode(
                json: serde_json::Value,
                path: &str,
                errors: &mut Vec<$crate::config::error::FieldError>,
            ) -> Option<Self> {
                $crate::config::section::decode_object(json, path, errors)
            }

            fn encode(&self) -> serde_json::Value {
                $crate::config::section::encode_object(self)
            }

            fn is_zero(&self) -> bool {
                false
            }
        }
    };
}

pub(crate) use section;
