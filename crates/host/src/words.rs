//! Numbers and lists in words.

use std::fmt::Display;

/// A number with its noun.
pub fn count<N: Copy + Display + PartialEq + From<u8>>(number: N, one: &str, many: &str) -> String {
    let noun = if number == N::from(1) { one } else { many };
    format!("{number} {noun}")
}

/// At most `most` items of a list, and the number of the others: `a, b and 7 more`.
pub fn first<T: Display>(items: &[T], most: usize) -> String {
    let shown: Vec<_> = items.iter().take(most).map(ToString::to_string).collect();
    let more = items.len() - shown.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_ends_with_the_number_of_the_others() {
        assert_eq!((first(&[1, 2], 2), first(&[1, 2, 3], 2)), ("1, 2".to_owned(), "1, 2 and 1 more".to_owned()));
        assert_eq!(first::<u8>(&[], 2), "");
    }
}
