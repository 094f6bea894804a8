//! The machine on which a suite ran: the facts that a reader needs to judge the figures.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::data::Fact;
use super::device::Block;

/// Facts about the machine, and about the device and the file system that hold `dir`.
pub(crate) fn facts(dir: &Path) -> Vec<Fact> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let model = field(&read("/proc/cpuinfo"), "model name");
    let memory = field(&read("/proc/meminfo"), "MemTotal")
        .and_then(|text| text.split(' ').next()?.parse::<f64>().ok())
        .map(|kib| format!("{:.1} GiB", kib / f64::from(1 << 20)));
    let load = read("/proc/loadavg");
    let load = load.split(' ').next().filter(|text| !text.is_empty());
    let mut facts = vec![
        ("Processor", model),
        ("Processors to use", Some(processors.to_string())),
        ("Memory", memory),
        (
            "Kernel",
            Some(read("/proc/sys/kernel/osrelease").trim().to_owned()),
        ),
        ("Load at the start", load.map(str::to_owned)),
    ];
    if let Some((kind, options)) = file_system(&read("/proc/self/mounts"), dir) {
        facts.push(("File system", Some(kind)));
        facts.push(("Mount options", Some(options)));
    }
    let block = Block::of(dir);
    let fact = |file| block.as_ref().and_then(|b| b.fact(file));
    let device = block.as_ref().map_or(
        "none: the file system is not on a block device".to_owned(),
        Block::name,
    );
    let rotational = fact("queue/rotational").map(|text| match text.as_str() {
        "1" => "yes, as the device says".to_owned(),
        _ => "no".to_owned(),
    });
    facts.extend([
        ("Device", Some(device)),
        ("Model", fact("device/model")),
        ("Rotational", rotational),
        ("Write cache", fact("queue/write_cache")),
        (
            "Force unit access",
            fact("queue/fua").map(|text| if text == "1" { "yes" } else { "no" }.to_owned()),
        ),
        ("Scheduler", fact("queue/scheduler")),
    ]);
    facts
        .into_iter()
        .filter_map(|(name, value)| Some((name, value.filter(|v| !v.is_empty())?)))
        .map(|(name, value)| Fact {
            name: name.to_owned(),
            value,
        })
        .collect()
}

/// The value after `name:` at the start of a line.
fn field(text: &str, name: &str) -> Option<String> {
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = lines.find(|(key, _)| key.trim() == name)?;
    Some(value.trim().to_owned())
}

/// The type and the options of the file system that holds a directory: of the mounts above it, the
/// one with the longest path, and among equal paths the last.
fn file_system(mounts: &str, dir: &Path) -> Option<(String, String)> {
    let dir = fs::canonicalize(dir).ok()?;
    let mount = mounts
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>())
        .filter(|fields| fields.len() > 3 && dir.starts_with(fields[1]))
        .max_by_key(|fields| fields[1].len())?;
    Some((mount[2].to_owned(), mount[3].to_owned()))
}

/// The current date and time: `2026-11-23T10:20:30Z`.
pub(crate) fn date() -> String {
    printed(Command::new("date").args(["-u", "+%Y-%m-%dT%H:%M:%SZ"])).unwrap_or_default()
}

/// The commit of the source tree, with `-dirty` appended if files differ. `None` without git or a
/// repository.
pub(crate) fn commit() -> Option<String> {
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        printed(command.current_dir(xtask::root()).args(arguments))
    };
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let dirty = git(&["status", "--porcelain", "--untracked-files=no"])?;
    Some(if dirty.is_empty() {
        commit
    } else {
        commit + "-dirty"
    })
}

fn printed(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|o| o.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_mount_of_the_longest_path_counts() {
        let mounts = "/dev/a / ext4 rw,relatime 0 0\n\
            /dev/b / xfs rw 0 0\n\
            none /no-such-place tmpfs rw 0 0\nshort line\n";
        let found = file_system(mounts, Path::new("/usr"));
        assert_eq!(found, Some(("xfs".to_owned(), "rw".to_owned())));
        assert_eq!(file_system("", Path::new("/usr")), None);
    }

    #[test]
    fn facts_have_values() {
        let facts = facts(Path::new("/proc"));
        assert!(facts.iter().all(|f| !f.value.is_empty()));
        assert!(facts.iter().any(|f| f.name == "Kernel"));
        let device = facts.iter().find(|f| f.name == "Device").unwrap();
        assert!(device.value.starts_with("none"), "{}", device.value);
        assert_eq!(field("a : b\nc: d\n", "c").as_deref(), Some("d"));
        assert_eq!(date().len(), 20);
    }
}
