//! Lines of several fields in one kernel: as the numbers of vectors, or with several results of one
//! field.
//!
//! Vectors: the kernel transforms a line of each field and writes cells of `vec4<f32>`. An
//! invocation takes the lines one after the other and keeps its points of all but the last in
//! registers, so each cell is written once, by a store of 16 bytes. In loops over butterflies, and
//! where a dispatch has one number of a cell only, it writes each number by itself.
//!
//! Spread fields: the kernel makes the results of the last field first, so that it may work in
//! place.

use super::{Condition, Writer};
use crate::fft::core::Core;

/// A number of a cell.
struct Number {
    address: String,
    value: String,
    valid: Condition,
}

/// The numbers of a line, until they are stored with those of the other lines.
#[derive(Default)]
pub(super) struct Line(Vec<Number>);

impl Writer<'_> {
    /// Writes the loop over the lines of `fields` fields.
    pub(super) fn vectors(&mut self, core: &Core, fields: u32) {
        // Other invocations may still read what the line before exchanged.
        self.dirty = self.shape.lanes > 1;
        let start = self.code.text.len();
        let [first, end] = ["y", "z"].map(|part| format!("params.line_output_more.{part}"));
        self.code.line(format!("for (var number = {first}; number < {end}; number++) {{"));
        self.code.line(format!("let line_in = input_line(vec3<u32>(c.xy, {fields}u * c.z + number - {first}));"));
        if fields == 1 || core.loops() {
            self.line_of(core);
        } else {
            // As in the loop over the results of a filter.
            self.code.line("let lane = lane + number * unknown_zero(0u);");
            self.held = Some(Line::default());
            self.line_of(core);
            let numbers = self.held.take().unwrap_or_default().0;
            let variables = self.store_together(&numbers, fields);
            self.code.text.insert_str(start, &variables);
        }
        self.code.line("}");
    }

    /// Writes the loop over the results of `from` fields, those of the last field first.
    pub(super) fn spread(&mut self, core: &Core, from: u32, to: u32) {
        self.dirty = self.shape.lanes > 1;
        // A number of rounds that compilers do not know: they would mix the code of all.
        self.code.line(format!("for (var round = 0u; round < {to}u + unknown_zero(1u); round++) {{"));
        self.code.line(format!("let result = {}u - round;", to - 1));
        let field = format!("{from}u * c.z + min(result, {}u)", from - 1);
        self.code.line(format!("let line_in = input_line(vec3<u32>(c.xy, {field}));"));
        if !core.loops() {
            self.code.line("let lane = lane + round * unknown_zero(0u);");
        }
        self.line_of(core);
        self.code.line("}");
    }

    /// Writes a number of the cell at `address`, or keeps it for the store of the whole cell.
    pub(super) fn put_number(&mut self, address: &str, value: String, valid: Condition) {
        let address = self.code.value(address);
        let valid = valid.and(Condition::Text("present".into()));
        if let Some(line) = &mut self.held {
            return line.0.push(Number { address, value, valid });
        }
        let Condition::Text(valid) = valid else { return };
        self.code.line(format!("if {valid} {{ set_output({address}, number, {value}); }}"));
    }

    /// Writes the stores of cells, of the last line with those before it. Returns the declarations
    /// of the variables that keep these.
    fn store_together(&mut self, numbers: &[Number], fields: u32) -> String {
        let kept = |point: usize, line: u32| format!("kept_{point}_{line}");
        self.code.line(format!("if number == {}u {{", fields - 1));
        for (point, Number { address, value, valid }) in numbers.iter().enumerate() {
            let Condition::Text(valid) = valid else { continue };
            let mut cell: Vec<String> = (0..fields - 1).map(|line| kept(point, line)).collect();
            cell.push(value.clone());
            cell.resize(4, "Real()".to_string());
            self.code.line(format!("if {valid} {{ store_output({address}, vec4<f32>({})); }}", cell.join(", ")));
        }
        self.code.line("}");
        let mut variables = String::new();
        for (point, Number { value, .. }) in numbers.iter().enumerate() {
            for line in 0..fields - 1 {
                variables.push_str(&format!("    var {}: Real;\n", kept(point, line)));
                let next = if line + 2 < fields { kept(point, line + 1) } else { value.clone() };
                self.code.line(format!("{} = {next};", kept(point, line)));
            }
        }
        variables
    }
}
