//! Sizes of meshes as options and in reports.

/// Longest axis: with it no count of cells or bytes leaves 64 bits.
const LONGEST: u64 = 1 << 16;

/// One number for a cube, or three with `x` between.
pub fn shape(text: &str) -> Result<[u64; 3], String> {
    let axis = |number: &str| number.trim().parse::<u64>().ok();
    let axes: Option<Vec<u64>> = text.split('x').map(axis).collect();
    let shape = match axes.as_deref() {
        Some(&[all]) => [all; 3],
        Some(&[x, y, z]) => [x, y, z],
        _ => return Err(format!("`{text}` is no size; write one number of cells, or three as 96x80x60")),
    };
    if shape.iter().any(|n| !(1..=LONGEST).contains(n)) {
        return Err(format!("every axis must have from 1 to {LONGEST} cells"));
    }
    Ok(shape)
}

/// Columns and rows with `x` between.
pub fn plane(text: &str) -> Result<[u64; 2], String> {
    match shape(&format!("{text}x1")) {
        Ok([columns, rows, 1]) if text.contains('x') => Ok([columns, rows]),
        _ => Err(format!("`{text}` is no grid; write columns and rows, from 1 to {LONGEST}, as 360x180")),
    }
}

/// `96x80x60`
pub fn name([x, y, z]: [u64; 3]) -> String {
    format!("{x}x{y}x{z}")
}
