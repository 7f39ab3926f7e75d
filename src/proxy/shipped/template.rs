//! Templates for the parts of a shipped file that depend on the operator: a subset of Mustache, without escaping.
//!
//! ```text
//! {{! comment }}          alone on its line: a part of a file begins below
//! {{name}}                a value; {{.}} is the item of a list itself
//! {{#name}} {{/name}}     the text inside, for each item of a list, or if there is a value other than false
//! {{^name}} {{/name}}     the text inside, if there is none
//! ```
//!
//! A line break after the opening tag of a section is left out. If the section consists of whole lines, so is the line
//! break after its closing tag. A section cannot contain another section with the same name.

use serde_json::Value;

/// Fills an operator's values into a shipped file: replaces each part of the template, filled in with the values
/// `from`, by the same part with the values `to`. Inserted text is not replaced again.
pub(super) fn fill(shipped: &str, template: &str, from: &[Value], to: &[Value]) -> String {
    let (from, to) = (parts(template, from), parts(template, to));
    let (mut filled, mut rest) = (String::with_capacity(shipped.len()), shipped);
    loop {
        let found = from.iter().zip(&to).filter_map(|(from, to)| Some((rest.find(from)?, from.len(), to)));
        let Some((at, length, to)) = found.min_by_key(|&(at, ..)| at) else { return filled + rest };
        filled += &rest[..at];
        filled += to;
        rest = &rest[at + length..];
    }
}

/// The parts of a template, filled in with these values.
pub(super) fn parts(template: &str, values: &[Value]) -> Vec<String> {
    let parts = template.trim_end().split("\n{{!").skip(1).filter_map(|part| part.split_once("}}\n"));
    parts.map(|(_, part)| rendered(part, &values.iter().collect::<Vec<_>>())).collect()
}

/// Fills values into a text. If two values have the same name, the last value is used.
fn rendered(mut template: &str, values: &[&Value]) -> String {
    let mut text = String::new();
    while let Some((before, after)) = template.split_once("{{") {
        let (tag, after) = after.split_once("}}").expect(VALID);
        text += before;
        let name = tag.trim_start_matches(['#', '^']);
        let value = value(name, values);
        if tag == name {
            text += &value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            template = after;
            continue;
        }
        let (inside, after) = after.split_once(&format!("{{{{/{name}}}}}")).expect(VALID);
        let inside = inside.strip_prefix('\n').unwrap_or(inside);
        template = after.strip_prefix('\n').filter(|_| inside.ends_with('\n')).unwrap_or(after);
        match value {
            Value::Array(items) if tag.starts_with('#') => {
                text.extend(items.iter().map(|item| rendered(inside, &[values, &[item]].concat())));
            }
            value if is_given(value) == tag.starts_with('#') => text += &rendered(inside, values),
            _ => {}
        }
    }
    text + template
}

const VALID: &str = "a test parses all templates";

fn value<'v>(name: &str, values: &[&'v Value]) -> &'v Value {
    match values {
        [.., item] if name == "." => item,
        values => values.iter().rev().find_map(|value| value.get(name)).unwrap_or(&Value::Null),
    }
}

fn is_given(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(is_true) => *is_true,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Number(_) | Value::Object(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_section_repeats_for_a_list_and_depends_on_other_values() {
        let values =
            json!({ "keys": [{ "key": "a" }, { "key": "b", "more": ["x", "y"] }], "no": false, "n": 7 });
        let text = |template| rendered(template, &[&values]);
        assert_eq!(text("{{#keys}}\n{{key}}{{#more}},{{.}}{{/more}};\n{{/keys}}\nend"), "a;\nb,x,y;\nend");
        assert_eq!(text("{{#no}}a{{/no}}{{^no}}b{{/no}}{{^keys}}c{{/keys}}{{#n}} {{n}}{{/n}}"), "b 7");
        assert_eq!(text("a{{#missing}}\nb\n{{/missing}}\nc"), "ac");
    }

    #[test]
    fn what_is_filled_in_is_not_taken_for_a_part() {
        let (from, to) = (json!({ "a": "a", "b": "b" }), json!({ "a": "b{{b}}", "b": "c" }));
        let template = "\n{{! one }}\n{{a}}\n{{! two }}\n{{b}}\n{{! end }}\n";
        assert_eq!(fill("a b a", template, &[from], &[to]), "b{{b}} c b{{b}}");
    }

    proptest! {
        #[test]
        fn a_text_without_parts_stays_as_it_is(text in "[a-y ]{0,40}") {
            let (from, to) = (json!({ "a": "z" }), json!({ "a": "a" }));
            prop_assert_eq!(fill(&text, "\n{{! one }}\n{{a}}", &[from], &[to]), text);
        }
    }
}
