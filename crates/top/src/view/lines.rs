//! The lines of a screen, divided among panels. Pure.

use super::panel::LEAST;

/// The lines that a panel asks for.
#[derive(Clone, Copy, Debug)]
pub struct PanelLines {
    /// At most.
    pub(crate) wanted: u16,
    /// The lines that it leaves to the panels after it.
    pub(crate) spared: u16,
    /// The lines that it takes in any case, if there are as many.
    pub(crate) least: u16,
}

impl PanelLines {
    /// A panel that takes all it wants.
    pub const fn first(wanted: u16) -> Self {
        Self {
            wanted,
            spared: 0,
            least: 0,
        }
    }
}

/// Divides `left` lines in the order of the panels; the last number is that of the lines that
/// remain. A panel without room for a row has none.
pub fn divided<const N: usize>(mut left: u16, panels: [PanelLines; N]) -> ([u16; N], u16) {
    let lines = panels.map(
        |PanelLines {
             wanted,
             spared,
             least,
         }| {
            let taken = wanted.min(left.saturating_sub(spared).max(least)).min(left);
            let taken = if taken < LEAST { 0 } else { taken };
            left -= taken;
            taken
        },
    );
    (lines, left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panels_take_lines_in_their_order_and_spare_some() {
        let panels = |left| {
            let peers = PanelLines {
                wanted: 10,
                spared: 5,
                least: LEAST,
            };
            divided(
                left,
                [
                    PanelLines::first(6),
                    PanelLines {
                        wanted: 8,
                        spared: 9,
                        least: 0,
                    },
                    peers,
                ],
            )
        };
        assert_eq!(panels(60), ([6, 8, 10], 36));
        assert_eq!(panels(25), ([6, 8, 6], 5));
        assert_eq!(panels(15), ([6, 0, 4], 5), "no panel without a row");
        assert_eq!(panels(8), ([6, 0, 0], 2));
        assert_eq!(panels(0), ([0, 0, 0], 0));
    }
}
