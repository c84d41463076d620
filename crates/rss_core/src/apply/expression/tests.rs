use ndarray::{Array3, ArrayView3, s};
use proptest::prelude::*;
use serde::Deserialize;

use super::*;

/// Computes a formula for the values of its bands.
fn value(text: &str, bands: &[(&str, f64)]) -> f64 {
    let formula: Expression = text.parse().unwrap();
    let samples = formula.bands().iter().map(|band| {
        let known = bands.iter().find(|(name, _)| name == band);
        Array3::from_elem((1, 1, 1), known.unwrap_or_else(|| panic!("{band}")).1)
    });
    let samples: Vec<Array3<f64>> = samples.collect();
    let views: Vec<ArrayView3<'_, f64>> = samples.iter().map(|band| band.view()).collect();
    let mut out = Array3::zeros((1, 1, 1));
    formula.compute(&views, out.view_mut());
    out[(0, 0, 0)]
}

fn error(text: &str) -> String {
    text.parse::<Expression>().unwrap_err().message().to_owned()
}

#[derive(Deserialize)]
struct Fixture {
    bands: std::collections::BTreeMap<String, Vec<f64>>,
    formulas: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    formula: String,
    values: Vec<Option<f64>>,
}

#[test]
fn generated_formulas_have_the_values_of_numexpr() {
    let text = include_str!("../../../tests/data/formulas/numexpr.json");
    let fixture: Fixture = serde_json::from_str(text).unwrap();
    assert!(fixture.formulas.len() > 250);
    for row in &fixture.formulas {
        let formula: Expression = format!("f={}", row.formula)
            .parse()
            .unwrap_or_else(|err| panic!("{err}"));
        let samples = formula.bands().iter().map(|band| {
            let values = fixture.bands[band].clone();
            Array3::from_shape_vec((1, 1, values.len()), values).unwrap()
        });
        let samples: Vec<Array3<f64>> = samples.collect();
        let views: Vec<ArrayView3<'_, f64>> = samples.iter().map(|band| band.view()).collect();
        let mut out = Array3::zeros((1, 1, row.values.len()));
        formula.compute(&views, out.view_mut());
        for (&found, &expected) in out.iter().zip(&row.values) {
            let same = match expected {
                Some(expected) => (found - expected).abs() <= 1e-9 * expected.abs().max(1e-3),
                None => found.is_nan(),
            };
            assert!(same, "{}: {found}, numexpr has {expected:?}", row.formula);
        }
    }
}

#[test]
fn operators_bind_as_in_mathematics() {
    let bands = [("x", 3.0), ("y", 5.0)];
    for (text, expected) in [
        ("-x^2", -9.0),
        ("2*-x^2", -18.0),
        ("-x**2+y", -4.0),
        ("2^3^2*x", 1536.0),
        ("2**-x", 0.125),
        ("2^-x^2", 2.0_f64.powi(-9)),
        ("--x", 3.0),
        ("x-y-2", -4.0),
        ("x/y*10", 6.0),
        ("x/y/2", 0.3),
        ("x*y%4", 3.0),
        ("-x%5", 2.0),
        ("x%-5", -2.0),
        ("fmod(-x, 5)", -3.0),
        ("mod(-x, 5)", 2.0),
        ("-x//2", -2.0),
        ("x//-2", -2.0),
        ("-x//(1/(x-x))", -1.0),
        ("1e-4*x", 3e-4),
        ("2.75e-5*x-0.2", 2.75e-5 * 3.0 - 0.2),
        ("x-1e3", -997.0),
        ("x+.5", 3.5),
        ("x+1.", 4.0),
        ("x+1.5E+1", 18.0),
        ("x<y", 1.0),
        ("x+2>=y", 1.0),
        ("not x<y", 0.0),
        ("not x > 1 and y > 9", 0.0),
        ("x>9 or x<9 and y>9", 0.0),
        ("x<9 or x>9 and y>9", 1.0),
        ("(x>9) | (y>1) & (x>1)", 1.0),
        ("~(x>9)", 1.0),
        ("!(x>9) && y==5 || x!=3", 1.0),
        ("(x>1) + (y>1)", 2.0),
        ("x*(y>1)", 3.0),
        ("where(x>2, y, -y)", 5.0),
        ("if(x>2 and y>9, y, -y)", -5.0),
        ("where(x, 1, 2)", 1.0),
        ("min(x, y, 2) + max(x, y, 7)", 9.0),
        ("clip(y, 0, x)", 3.0),
        ("round(x/2) + round(y/2)", 4.0),
        ("log(e^x) + ln(x/x)", 3.0),
        ("sign(-x) + sign(x-x) + 2*signum(y)", 1.0),
        ("fract(-x/2)", -0.5),
        ("2*pi*x/tau", 3.0),
        ("isnan(x) + isfinite(x)", 1.0),
        ("pow(x, 2) + hypot(x, 4)", 14.0),
        ("+x", 3.0),
    ] {
        let found = value(text, &bands);
        assert!(
            (found - expected).abs() < 1e-12,
            "{text}: {found}, expected {expected}"
        );
    }
    // A kernel index, for which the sign decides.
    let kndvi = "kndvi=(1-exp(-(nir-red)^2/(2*0.15^2)))/(1+exp(-(nir-red)^2/(2*0.15^2)))";
    let found = value(kndvi, &[("nir", 0.4), ("red", 0.1)]);
    assert!((found - 1.0_f64.tanh()).abs() < 1e-12, "{found}");
}

#[test]
fn what_is_computed_of_a_missing_value_is_missing() {
    let bands = [("x", f64::NAN), ("y", 5.0), ("zero", 0.0)];
    for text in [
        "x",
        "-x",
        "x+1",
        "0*x",
        "x^0",
        "1^x",
        "min(x, y)",
        "min(y, x)",
        "max(y, x)",
        "clip(y, x, 9)",
        "x > 1",
        "x < 1",
        "x == x",
        "x != x",
        "not x > 1",
        "~(x > 1)",
        "x > 1 and y > 1",
        "x > 1 or y > 9",
        "where(x > 1, y, y)",
        "where(y > 1, x, y)",
        "hypot(x, y)",
        "sign(x)",
        "x % 2",
        "x // 2",
        // No finite value.
        "y/zero",
        "log(zero)",
        "sqrt(-y)",
        "zero/zero",
        "where(y > 1, nan, y)",
    ] {
        assert!(value(text, &bands).is_nan(), "{text}");
    }
    for (text, expected) in [
        // What does not depend on it.
        ("where(y > 1, y, x)", 5.0),
        ("where(isnan(x), y, x)", 5.0),
        ("x > 1 and y > 9", 0.0),
        ("y > 9 and x > 1", 0.0),
        ("x > 1 or y > 1", 1.0),
        ("isnan(x) or x > 1", 1.0),
        ("isfinite(x) + isfinite(y)", 1.0),
        ("1/(y/zero)", 0.0),
    ] {
        assert_eq!(value(text, &bands), expected, "{text}");
    }
}

#[test]
fn names_are_those_of_bands() {
    let bands = |text: &str| text.parse::<Expression>().unwrap().bands().to_vec();
    assert_eq!(bands("nbart_red-B08"), ["B08", "nbart_red"]);
    assert_eq!(
        bands("visual:2 - visual:red*stack:01"),
        ["stack:01", "visual:2", "visual:red"]
    );
    assert_eq!(
        bands("'B8-A' + `10m` + {a b} + \"a=b\" + 'π' + über"),
        ["10m", "B8-A", "a b", "a=b", "über", "π"]
    );
    // The name of a function or of a constant is a band, too: without brackets, or in quotes.
    assert_eq!(bands("min + 'e' + e*pi"), ["e", "min"]);
    assert_eq!(value("min + 'e'", &[("e", 2.0), ("min", 3.0)]), 5.0);
    let named: Expression = " my index (16 days) = nir >= 'a=b' ".parse().unwrap();
    assert_eq!(
        (named.name(), named.formula(), named.bands().len()),
        ("my index (16 days)", "nir >= 'a=b'", 2)
    );
    assert_eq!(named.to_string(), "my index (16 days)=nir >= 'a=b'");
    let same: Expression = "a==b".parse().unwrap();
    assert_eq!((same.name(), same.to_string().as_str()), ("a==b", "a==b"));
}

#[test]
fn a_formula_that_is_none_says_where_and_why() {
    for (text, why) in [
        (
            "(nir-red",
            "formula `(nir-red`: expected `)` for the `(` of character 1, found the end",
        ),
        ("=nir", "formula `=nir`: expected a name before `=`"),
        ("1+1", "expected at least one band"),
        (
            "",
            "formula ``: expected a number, a band, a function or `(`, found the end",
        ),
        (
            "x=",
            "expected a number, a band, a function or `(`, found the end",
        ),
        (
            "nir red",
            "formula `nir red`, character 5: expected an operator, found `red`",
        ),
        ("2 nir", "character 3: expected an operator, found `nir`"),
        (
            "2nir",
            "character 1: `2nir` is no number; a name that begins with a digit is written in quotes: '2nir'",
        ),
        ("1e*nir", "`1e` is no number"),
        ("nir)", "character 4: `)` closes no `(`"),
        ("nir,red", "character 4: expected an operator, found `,`"),
        (
            "i=nir*/red",
            "character 7: expected a number, a band, a function or `(`, found `/`",
        ),
        ("über*/red", "character 6: expected a number"),
        (
            "nir max red",
            "character 5: expected an operator, found `max`; arguments are written in brackets: max(..)",
        ),
        (
            "sqrt nir",
            "character 6: expected an operator, found `nir`; arguments are written in brackets: sqrt(..)",
        ),
        (
            "nir*sqroot(2)",
            "character 5: `sqroot` is no function; those are abs, ",
        ),
        (
            "where(nir, 1)",
            "`where` of 2 arguments, expected 3: a condition",
        ),
        ("min(nir)", "`min` of 1 arguments, expected 2 or more"),
        ("sqrt()+nir", "`sqrt` of 0 arguments, expected 1"),
        (
            "max(nir red)",
            "character 9: expected an operator, found `red`",
        ),
        ("max(nir,", "found the end"),
        (
            "0 < nir < 1",
            "character 9: comparisons cannot be chained: write `a < b and b < c`",
        ),
        (
            "nir > 1 & red > 2",
            "character 9: `&` joins conditions in brackets, such as `(a > 1) & (b > 2)`, and `1` is none",
        ),
        ("qa & 8 == 0", "`&` joins conditions"),
        ("!nir > 2", "character 1: `!` joins conditions"),
        ("1 + not nir > 2", "character 5: `not` binds less tightly"),
        (
            "where(nir=1, 2, 3)",
            "expected a name before `=`, found `where(nir`; `==` compares",
        ),
        ("a=b=c", "expected an operator, found `=`; `==` compares"),
        ("a<b=c", "expected a name before `=`, found `a<b`"),
        (
            "nir ? 1 : 2",
            "character 5: `?` is no part of a formula; a choice is written where(condition, a, b)",
        ),
        (
            "'nir",
            "character 1: the name that begins here lacks its closing '",
        ),
        ("''+nir", "expected a name in the quotes"),
        (
            "'min'(nir, 2)",
            "`min` is a band, as it is quoted, and no function",
        ),
        ("nir*1e999", "`1e999` is too large a number"),
        ("nir $ 2", "`$` is no part of a formula"),
        (
            "and",
            "expected a number, a band, a function or `(`, found `and`",
        ),
    ] {
        let said = error(text);
        assert!(said.contains(why), "{text}: {said}");
    }
}

#[test]
fn nesting_is_bounded_and_length_costs_no_stack() {
    for (open, close) in [
        ("(", ")"),
        ("-", ""),
        ("not ", ""),
        ("2^", ""),
        ("sqrt(", ")"),
        ("max(1,", ")"),
    ] {
        let nested = |times: usize| format!("{}nir{}", open.repeat(times), close.repeat(times));
        assert_eq!(nested(100).parse::<Expression>().unwrap().bands(), ["nir"]);
        let said = error(&nested(9000));
        assert!(
            said.contains("nested too deeply, expected at most 128 levels"),
            "{said}"
        );
        assert!(said.len() < 600, "{said}");
    }
    let sum = vec!["nir"; 10_000].join("+");
    assert_eq!(value(&sum, &[("nir", 2.0)]), 20_000.0);
    let most = format!("max({})", vec!["nir"; 10_000].join(","));
    let most: Expression = most.parse().unwrap();
    assert_eq!(most.program.room::<f32>().len(), 2);
    let said = error(&"nir+".repeat(20_000));
    assert!(
        said.contains("80000 bytes are too many for a formula"),
        "{said}"
    );
}

#[test]
fn numbers_are_rounded_to_the_type_of_the_bands() {
    // 0.1 of a file is the nearest float32, and so is that of the formula: numpy's rule, too.
    let formula: Expression = "where(red <= 0.1, 1, 2)".parse().unwrap();
    let red = Array3::from_elem((1, 1, 1), 0.1_f32);
    let mut out = Array3::zeros((1, 1, 1));
    formula.compute(&[red.view()], out.view_mut());
    assert_eq!(out[(0, 0, 0)], 1.0);
}

#[test]
fn two_results_of_one_name_are_an_error() {
    let all = Expression::parse_all(["a=red", "red"]).unwrap();
    assert_eq!(all.len(), 2);
    for texts in [["a=red", "a=nir"], ["red", "red"]] {
        let err = Expression::parse_all(texts).unwrap_err();
        assert!(
            err.message().starts_with("two formulas have the name `"),
            "{err}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn rows_of_any_length_and_strides_give_the_same(
        (times, height, width) in (1_usize..3, 1_usize..4, 1_usize..700),
        seed in any::<u32>(),
    ) {
        let sample = |shift: usize| move |(t, y, x): (usize, usize, usize)| {
            let number = (t * 7919 + y * 104_729 + x * 31 + shift).wrapping_mul(seed as usize | 1) % 97;
            if number == 3 { f32::NAN } else { number as f32 / 8.0 - 4.0 }
        };
        let a = Array3::from_shape_fn((times, height, width), sample(0));
        let b = Array3::from_shape_fn((times, height, width), sample(5));
        let formula: Expression = "where(a > b, (a-b)/(a+b), 2*a - b^2)".parse().unwrap();
        let mut out = Array3::zeros(a.dim());
        formula.compute(&[a.view(), b.view()], out.view_mut());
        for ((&a, &b), &found) in a.iter().zip(&b).zip(&out) {
            let expected = if a > b { (a - b) / (a + b) } else { 2.0 * a - b * b };
            let expected = if expected.is_finite() { expected } else { f32::NAN };
            prop_assert!(found == expected || found.is_nan() && expected.is_nan(), "{} {}", found, expected);
        }
        let turned = [&a, &b].map(|band| band.view().permuted_axes([0, 2, 1]));
        let mut other = Array3::zeros((times, width, height));
        formula.compute(&turned, other.view_mut());
        let back = other.permuted_axes([0, 2, 1]);
        prop_assert!(back.iter().zip(&out).all(|(a, b)| a.to_bits() == b.to_bits()));
        let mut wide = Array3::zeros((times, height, 2 * width));
        formula.compute(&[a.view(), b.view()], wide.slice_mut(s![.., .., ..;2]));
        prop_assert!(wide.slice(s![.., .., ..;2]).iter().zip(&out).all(|(a, b)| a.to_bits() == b.to_bits()));
    }

    /// Nothing that is typed makes the parser panic.
    #[test]
    fn any_text_is_a_formula_or_an_error(text in "[-+*/%^<>=!&|~(),'`{}\"a-c0-9.e: äand]{0,40}") {
        let _ = text.parse::<Expression>();
    }
}
