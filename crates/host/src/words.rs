//! Numbers and lists in words.

use std::{cmp::Ordering, fmt::Display};

/// A number with its noun.
pub fn count<N: Copy + Display + PartialEq + From<u8>>(number: N, one: &str, many: &str) -> String {
    let noun = if number == N::from(1) { one } else { many };
    format!("{number} {noun}")
}

/// At most `most` items of a list, and the number of the others: `a, b and 7 more`.
pub fn first<T: Display>(items: &[T], most: usize) -> String {
    let shown: Vec<_> = items.iter().take(most).map(ToString::to_string).collect();
    let more = items.len() - shown.len();
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    format!("{}{more}", shown.join(", "))
}

/// The order in which people sort names: `n2` before `n10`.
pub fn compare_names(a: &str, b: &str) -> Ordering {
    alphanumeric_sort::compare_str(a, b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_ends_with_the_number_of_the_others() {
        assert_eq!(
            (first(&[1, 2], 2), first(&[1, 2, 3], 2)),
            ("1, 2".to_owned(), "1, 2 and 1 more".to_owned())
        );
        assert_eq!(first::<u8>(&[], 2), "");
    }

    #[test]
    fn numbers_in_names_count_as_numbers() {
        let mut names = ["n10", "n2", "n1", "m"];
        names.sort_by(|a, b| compare_names(a, b));
        assert_eq!(names, ["m", "n1", "n2", "n10"]);
    }
}
