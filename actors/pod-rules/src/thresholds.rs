//! The value of an eviction threshold: an amount, or a percentage of the capacity (row 19.1).

use pod_spec::quantity::Quantity;

/// An amount, or a part of the capacity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// An absolute amount.
    Amount(Quantity),
    /// A part of the capacity; 1 is the whole capacity.
    Part(f32),
}

impl Value {
    /// Reads a quantity, or a number with a percent sign, of any size and sign.
    ///
    /// # Errors
    /// A text for people that says what is wrong with the input.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some(percent) = text.strip_suffix('%') else {
            return Quantity::parse(text).map(Self::Amount).map_err(|error| error.to_string());
        };
        match percent.parse::<f32>() {
            Ok(percent) if percent.is_finite() => Ok(Self::Part(percent / 100.0)),
            Ok(_) => Err("it is not a number".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// The threshold as an amount of this capacity. As upstream computes it: the percentage has single
    /// precision, the product double precision.
    pub fn of(self, capacity: Quantity) -> Quantity {
        match self {
            Self::Amount(amount) => amount,
            Self::Part(part) => {
                Quantity::binary((capacity.units_rounded_up() as f64 * f64::from(part)) as u64)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_and_percentages_are_read() {
        assert_eq!(Value::parse("1Gi"), Ok(Value::Amount(Quantity::binary(1 << 30))));
        assert_eq!(Value::parse("-5%"), Ok(Value::Part(-0.05)));
        for text in ["", "%", "x%", "inf%", "nan%", "1Qx"] {
            assert!(Value::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_part_is_of_single_precision() {
        let capacity = Quantity::binary(100 << 30);
        let tenth = Value::parse("10%").map(|value| value.of(capacity).units_rounded_up());
        // A tenth in single precision is a little more than a tenth.
        assert_eq!(tenth, Ok(10_737_418_400));
        assert_eq!(Value::Amount(Quantity::decimal(7)).of(capacity), Quantity::decimal(7));
    }
}
