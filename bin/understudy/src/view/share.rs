//! PURE: divides lines among sections.

/// Divides `budget` lines fairly: no section gets more than it wants, and lines that one does not want go to the
/// others.
pub fn shares(wants: &[usize], budget: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..wants.len()).collect();
    order.sort_by_key(|index| wants[*index]);
    let mut shares = vec![0; wants.len()];
    let mut left = budget;
    for (served, index) in order.into_iter().enumerate() {
        shares[index] = wants[index].min(left / (wants.len() - served));
        left -= shares[index];
    }
    shares
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_modest_get_what_they_want() {
        assert_eq!(shares(&[10, 2, 30], 20), [9, 2, 9]);
        assert_eq!(shares(&[1, 2, 3], 20), [1, 2, 3]);
        assert_eq!(shares(&[5, 5], 0), [0, 0]);
    }

    proptest! {
        #[test]
        fn no_line_is_wasted_or_invented(wants in prop::collection::vec(0usize..50, 1..5), budget in 0usize..80) {
            let shares = shares(&wants, budget);
            prop_assert_eq!(shares.iter().sum::<usize>(), budget.min(wants.iter().sum()));
            prop_assert!(shares.iter().zip(&wants).all(|(share, want)| share <= want));
        }
    }
}
