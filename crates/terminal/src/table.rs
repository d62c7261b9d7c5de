//! Tables on a terminal: columns as wide as their widest cell, two blanks between them.

use crate::color::width;

/// Renders a header and rows of cells. Colours in them take no room.
pub fn render<const N: usize>(header: [&str; N], rows: &[[String; N]]) -> String {
    render_rows(header.map(str::to_owned).as_slice(), rows)
}

/// Renders a header and rows of as many cells.
pub fn render_rows(header: &[String], rows: &[impl AsRef<[String]>]) -> String {
    let lines = || std::iter::once(header).chain(rows.iter().map(AsRef::as_ref));
    let widest = |column: usize| {
        lines()
            .map(|line| width(&line[column]))
            .max()
            .unwrap_or_default()
    };
    let widths: Vec<usize> = (0..header.len()).map(widest).collect();
    let mut text = String::new();
    for line in lines() {
        push_line(&mut text, line, &widths);
    }
    text
}

fn push_line(text: &mut String, cells: &[String], widths: &[usize]) {
    let mut line = String::new();
    for (cell, wide) in cells.iter().zip(widths) {
        line.push_str(cell);
        line.push_str(&" ".repeat(wide + 2 - width(cell)));
    }
    text.push_str(line.trim_end());
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [
            ["a".to_owned(), "1".to_owned()],
            ["long".to_owned(), String::new()],
        ];
        assert_eq!(render(["KEY", "N"], &rows), "KEY   N\na     1\nlong\n");
        assert_eq!(render(["KEY"], &[]), "KEY\n");
        let green = "\u{1b}[32ma\u{1b}[0m";
        assert_eq!(
            render(["KEY", "N"], &[[green.to_owned(), "1".to_owned()]]),
            format!("KEY  N\n{green}    1\n")
        );
    }
}
