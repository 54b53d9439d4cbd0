//! What a threshold of eviction is given as: an amount, or a percentage of what there is (row 19.1).

use pod_spec::quantity::Quantity;

/// An amount, or a part of what there is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// So much.
    Amount(Quantity),
    /// This part of the capacity; 1 is all of it.
    Part(f32),
}

impl Value {
    /// Reads a quantity, or a number with a percent sign, whatever its size and sign.
    ///
    /// # Errors
    /// For people: what is wrong with the text.
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

    /// How much that is of a capacity: a percentage of single precision, of a whole number of double precision, as
    /// upstream computes it.
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
