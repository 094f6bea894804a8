//! The page as a whole: well formed, complete, and self-contained.

use super::*;
use crate::suites::data::tests::{benchmark, report};
use crate::suites::data::{Extra, Fact};

/// A report of a small real suite.
const SAMPLE: &str = include_str!("../../../tests/it/sample-report.json");

const VOID: [&str; 4] = ["meta", "br", "hr", "link"];

/// The names of all elements. Panics if one is not closed, or closed in the wrong order.
fn elements(page: &str) -> Vec<String> {
    let mut rest = page.strip_prefix("<!DOCTYPE html>").unwrap();
    let (mut open, mut all) = (Vec::<String>::new(), Vec::new());
    while let Some((_, tail)) = rest.split_once('<') {
        let mut quoted = false;
        let end = tail.find(|c| {
            quoted ^= c == '"';
            c == '>' && !quoted
        });
        let (tag, behind) = tail.split_at(end.unwrap());
        rest = &behind[1..];
        let name = tag.split_whitespace().next().unwrap();
        if let Some(name) = name.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name), "before {rest:.80}");
        } else {
            all.push(name.to_owned());
            if !VOID.contains(&name) {
                open.push(name.to_owned());
            }
            if name == "style" {
                rest = &rest[rest.find("</style>").unwrap()..];
            }
        }
    }
    assert_eq!(open, Vec::<String>::new());
    all
}

fn sample() -> Report {
    Report::parse(SAMPLE).unwrap()
}

#[test]
fn the_page_is_well_formed_and_complete() {
    let report = sample();
    let page = html(&report);
    let elements = elements(&page);
    for needed in ["html", "title", "main", "svg", "table", "figcaption", "h1"] {
        assert!(elements.iter().any(|e| e == needed), "{needed}");
    }
    assert!(
        elements
            .iter()
            .all(|e| e != "script" && e != "img" && e != "link")
    );
    for benchmark in &report.benchmarks {
        let heading = format!("<th scope=\"row\">{}</th>", benchmark.name);
        assert!(page.contains(&heading), "{}", benchmark.name);
    }
    for fact in &report.machine {
        assert!(page.contains(&fact.name), "{}", fact.name);
    }
    assert!(page.contains("<html lang=\"en\">"));
    assert!(!page.contains("NaN") && !page.contains("inf<"));
}

#[test]
fn nothing_comes_from_elsewhere() {
    let page = html(&sample());
    for foreign in ["http://", "https://", "src=", "@import", "url("] {
        assert!(!page.contains(foreign), "{foreign}");
    }
}

#[test]
fn every_plot_says_what_it_shows() {
    let page = html(&sample());
    let plots = page.matches("<svg").count();
    let hidden = page.matches("<svg width").count();
    let told = page.matches("role=\"img\" aria-label=\"").count();
    let inner = page.matches("<svg class=\"mark\"").count();
    let axes = page.matches("<svg class=\"track\">").count();
    assert!(told > 5);
    assert_eq!(plots, hidden + told + inner + axes);
}

#[test]
fn what_users_name_is_escaped() {
    let mut odd = report(vec![benchmark("<b>&\"x", &[(1.0, 2.0)])]);
    odd.suite = "<script>".to_owned();
    odd.complete = false;
    odd.problem = Some("db_bench <failed> & more".to_owned());
    odd.machine.push(Fact {
        name: "Processor".to_owned(),
        value: "<a \"b\">".to_owned(),
    });
    odd.extras.push(Extra {
        title: "<i>".to_owned(),
        command: "cargo".to_owned(),
        text: "\n| a | <u> |\n|---|---:|\n| 1 | 2 & 3 |\nplain <p>\n".to_owned(),
    });
    let page = html(&odd);
    let elements = elements(&page);
    assert!(
        elements
            .iter()
            .all(|e| !["script", "i", "u", "a"].contains(&e.as_str()))
    );
    assert!(page.contains("db_bench &lt;failed&gt; &amp; more"));
    assert!(page.contains("&lt;b&gt;&amp;&quot;x"));
}

#[test]
fn a_report_without_figures_is_a_page_too() {
    let mut bare = report(vec![benchmark("fillseq", &[])]);
    elements(&html(&bare));
    bare.benchmarks.clear();
    let page = html(&bare);
    elements(&page);
    assert!(page.contains("0 of 0"));
}
