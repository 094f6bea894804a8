//! The source files that a kernel passes, from Callgrind's profile.
//!
//! A profile has lines `fl=`, `fi=` and `fe=` that name a file, once with a number and later by the number alone
//! (`cfl=` and `cfi=` name the file of a call). Lines of costs begin with the number of a line: as it is, or relative
//! to the one before (`+3`, `-3`, `*`). The costs behind `calls=` are those of another function. (Source: Valgrind's
//! manual, "Callgrind Format Specification".)

use std::collections::{BTreeMap, BTreeSet};

/// A file of which no more lines run than these has no step to be read: it has accessors.
const ACCESSORS: usize = 3;

/// The most files with steps in the engine, by kernel: what a reader of the path of a put or a get has to open.
const LIMITS: [(&str, usize); 2] = [("db_put", 15), ("db_get", 15)];

/// Errors: the kernel passes more files of the engine than it may.
pub(super) fn check(kernel: &str, profile: &str) -> Result<(), String> {
    let Some((_, limit)) = LIMITS.iter().find(|(name, _)| *name == kernel) else {
        return Ok(());
    };
    let found = lines(profile);
    let engine = found.iter().filter(|(file, _)| file.starts_with("engine/"));
    let count = engine.filter(|(_, lines)| lines.len() > ACCESSORS).count();
    if count > *limit {
        return Err(format!(
            "{kernel} passes {count} files of the engine, of at most {limit}: `cargo xtask counts --files {kernel}` lists them"
        ));
    }
    Ok(())
}

/// The lines that run, by the files below `crates/`.
fn lines(profile: &str) -> BTreeMap<&str, BTreeSet<u64>> {
    let mut names: BTreeMap<&str, &str> = BTreeMap::new();
    let mut out: BTreeMap<&str, BTreeSet<u64>> = BTreeMap::new();
    let (mut file, mut line, mut of_another) = ("", 0_u64, false);
    for text in profile.lines() {
        if let Some((kind, named)) = text.split_once('=') {
            if matches!(kind, "fl" | "fi" | "fe" | "cfl" | "cfi") {
                let (number, name) = named.split_once(' ').unwrap_or((named, ""));
                if !name.is_empty() {
                    names.insert(number, name);
                }
                if !kind.starts_with('c') {
                    file = names.get(number).copied().unwrap_or(name);
                }
            }
            of_another = kind == "calls";
            continue;
        }
        let Some((place, _)) = text.split_once(' ') else {
            continue;
        };
        let number = |digits: &str| digits.parse::<u64>().ok();
        let at = match place.as_bytes().first() {
            Some(b'+') => number(&place[1..]).map(|n| line.saturating_add(n)),
            Some(b'-') => number(&place[1..]).map(|n| line.saturating_sub(n)),
            Some(b'*') => Some(line),
            _ => number(place),
        };
        let Some(at) = at else { continue };
        line = at;
        // Line 0: the compiler made the instruction.
        if !std::mem::take(&mut of_another)
            && line > 0
            && let Some((_, below)) = file.rsplit_once("crates/")
        {
            out.entry(below).or_default().insert(line);
        }
    }
    out
}

/// The files with steps, with the number of lines that run; and how many each crate has.
pub(super) fn table(kernel: &str, profile: &str) -> String {
    let mut out = format!("{kernel}\n");
    let mut of_crates: BTreeMap<&str, usize> = BTreeMap::new();
    for (file, lines) in lines(profile) {
        if lines.len() > ACCESSORS {
            out += &format!("{:6}  {file}\n", lines.len());
            let of = file.split('/').next().unwrap_or(file);
            *of_crates.entry(of).or_default() += 1;
        }
    }
    let counts = of_crates.iter().map(|(of, count)| format!("{of} {count}"));
    out += &format!("files: {}\n", counts.collect::<Vec<_>>().join(", "));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_the_files_they_are_in() {
        let profile = "positions: line\nevents: Ir\n\n\
                       fl=(1) /x/crates/engine/src/a.rs\nfn=(2) f\n10 5\n+2 5\n* 7\n\
                       cfi=(3) /x/crates/log/src/b.rs\ncfn=(4) g\ncalls=1 7\n+1 900\n-3 1\n\
                       fi=(5) /rustc/library/core/src/c.rs\n88 1\nfe=(1)\n20 1\n0 4\n\
                       fl=(3) /x/crates/log/src/b.rs\nfn=(4)\n7 1\n";
        let found = lines(profile);
        assert_eq!(found["engine/src/a.rs"], BTreeSet::from([10, 12, 20]));
        assert_eq!(found.len(), 2, "{found:?}");
        let more = profile.replace("20 1", "20 1\n21 1");
        let table = table("f", &more);
        assert!(table.ends_with("files: engine 1\n"), "{table}");
        assert!(table.contains("     4  engine/src/a.rs"), "{table}");
        assert_eq!(check("f", &more), Ok(()));
        assert_eq!(check("db_put", &more), Ok(()));
        let file = |n: usize| format!("fl=({n}) crates/engine/src/{n}.rs\n1 1\n2 1\n3 1\n4 1\n");
        let many: String = (0..16).map(file).collect();
        let refused = check("db_put", &many).unwrap_err();
        assert!(refused.contains("16 files"), "{refused}");
    }
}
