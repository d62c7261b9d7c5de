//! The rates of ten minutes as a line of blocks, whose heights are shares of the greatest. Pure.

use flannel_flows::history::POINTS;

/// No value is known.
const UNKNOWN: char = ' ';
/// From a rate of zero to the greatest. Their order is that of their code points.
const BLOCKS: [char; 8] = [
    '\u{2581}', '\u{2582}', '\u{2583}', '\u{2584}', '\u{2585}', '\u{2586}', '\u{2587}', '\u{2588}',
];

/// A block for each value, the newest at the right end.
pub fn sparkline(values: &[Option<u64>]) -> String {
    let greatest = values
        .iter()
        .flatten()
        .copied()
        .max()
        .unwrap_or_default()
        .max(1);
    let steps = u128::from(BLOCKS.len() as u64 - 1);
    let block = |value: &Option<u64>| {
        let Some(value) = value else { return UNKNOWN };
        let step = (u128::from(*value) * steps).div_ceil(u128::from(greatest));
        usize::try_from(step)
            .ok()
            .and_then(|step| BLOCKS.get(step))
            .copied()
            .unwrap_or(UNKNOWN)
    };
    let missing = std::iter::repeat_n(UNKNOWN, POINTS.saturating_sub(values.len()));
    missing.chain(values.iter().map(block)).collect()
}

/// The same in fewer columns, each with the highest of its blocks.
pub(super) fn squeezed(line: &str, width: usize) -> String {
    let length = line.chars().count();
    if length <= width {
        return line.to_owned();
    }
    let mut columns = vec![UNKNOWN; width];
    for (place, block) in line.chars().enumerate() {
        if let Some(column) = columns.get_mut(place * width / length) {
            *column = block.max(*column);
        }
    }
    columns.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heights_are_shares_of_the_greatest_and_any_packet_is_seen() {
        let line = sparkline(&[None, Some(0), Some(1), Some(50), Some(100)]);
        assert_eq!(line.chars().count(), POINTS);
        assert_eq!(line.trim_start(), "\u{2581}\u{2582}\u{2585}\u{2588}");
        assert!(
            sparkline(&[Some(0); 60])
                .chars()
                .all(|block| block == '\u{2581}')
        );
        assert_eq!(sparkline(&[Some(u64::MAX); 60]), "\u{2588}".repeat(60));
        assert_eq!(sparkline(&[]).trim(), "");
    }

    #[test]
    fn a_narrow_line_keeps_its_peaks() {
        let mut values = [Some(0); 60];
        values[31] = Some(9);
        let shown = squeezed(&sparkline(&values), 20);
        assert_eq!(
            (
                shown.chars().count(),
                shown.chars().position(|block| block == '\u{2588}')
            ),
            (20, Some(10))
        );
        assert_eq!(squeezed(&shown, 20), shown);
        assert_eq!(squeezed(&shown, 0), "");
    }
}
